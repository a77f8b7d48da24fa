"""Which sites of a program depend on which, and pictures of it."""
