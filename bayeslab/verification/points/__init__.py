"""Values of the latent sites at which what was found is tested."""
