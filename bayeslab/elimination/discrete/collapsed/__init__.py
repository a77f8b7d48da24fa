"""Discrete elements with jointly Normal sites integrated out."""
