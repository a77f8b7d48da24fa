"""Families of the variables that make a Normal of something else."""
