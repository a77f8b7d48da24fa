"""Mixed membership at size: every observed symbol has an origin, and origins are kept as counts."""
