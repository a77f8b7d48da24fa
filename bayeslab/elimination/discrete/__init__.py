"""Discrete sites whose elements meet: which of them do, tables of what they say, and draws of some given the others."""
