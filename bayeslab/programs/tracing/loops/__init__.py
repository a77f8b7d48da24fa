"""Loops of traced programs: distributed over their steps, and run backwards."""
