"""Names of the parts of a site that is missing in part."""

UNOBSERVED, OBSERVED = "_unobserved", "_observed"
"""What the name of a site with `obs_mask=` gets in NumPyro for its two parts."""

_GIVEN = " (given)"
"""What the name of a site gets for the part of it that is data."""


def given_part(name: str) -> str:
    """The name of the site that holds the given elements of a site that is missing in part."""
    return name + _GIVEN


def whole_site(name: str) -> str:
    """The name that the data have for a site: that of which it holds the given elements, or its own.

    Several names that are joined to one have those of the data, too.
    """
    return name.replace(_GIVEN, "")
