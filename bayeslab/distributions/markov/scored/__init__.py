"""Chains of labels whose log probability is a sum of scores, of labels and of neighbours, but for a constant."""
