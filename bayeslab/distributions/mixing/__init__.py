"""Distributions of the scales and precisions that make a Normal of something else."""
