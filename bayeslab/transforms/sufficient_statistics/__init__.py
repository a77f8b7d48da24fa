"""Sufficient statistics in place of the rows of the data."""
