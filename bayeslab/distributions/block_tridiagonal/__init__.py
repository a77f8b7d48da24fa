"""Normals whose precision has blocks for neighbouring steps alone."""
