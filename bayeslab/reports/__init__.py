"""Comparisons as text and cards, reports of population structure, demonstrations."""
