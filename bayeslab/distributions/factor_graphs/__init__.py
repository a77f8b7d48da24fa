"""Discrete variables that meet in factors: orders of elimination, distributions, Markov random fields."""
