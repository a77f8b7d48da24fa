"""A Gaussian process and its program at the inputs of a fit and at new ones."""
