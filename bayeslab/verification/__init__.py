"""Conditionals are proven or refused."""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used
