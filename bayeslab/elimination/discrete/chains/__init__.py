"""Discrete sites whose elements meet from step to step, as in a scan: found, read as tables, summed over."""
