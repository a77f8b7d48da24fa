"""Sites that are jointly Normal given all others."""
