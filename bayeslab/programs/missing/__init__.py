"""Sites that are missing in part and that others depend on."""
