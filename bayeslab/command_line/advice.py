"""What `diagnose` says, with the options of the command in place of Python's arguments."""

OPTIONS = {
    "raise num_samples, or continue with previous=tree": "raise --draws; --resume goes on from what is there",
    "allow more, or continue with previous=tree": "raise --steps",
    "raise target_accept_prob, or reparameterise (non-centred scales)": "raise --target-accept, such as to 0.99",
    "raise max_tree_depth, or rescale the parameters": "raise --max-tree-depth, or rescale the columns",
    "warm up longer, look at az.plot_rank, and align components that switch labels": "raise --warmup and --draws; "
    "components that switch labels are no error, and bl.align of the Python library puts them in one order",
    "take a richer guide, or NUTS": "take --method nuts, or with svi --guide full-rank or flow",
    "fit again with another key or a longer warm-up": "fit again with another --seed or a larger --warmup",
    "check the data and the supports, and compute in float64": "check the columns",
    "reparameterise heavy tails and hierarchical scales": "raise --warmup and --draws",
}
"""Advice for Python, and for the command."""


def advice(problems: str) -> list[str]:
    """The lines of `diagnose`, with options of the command in place of arguments."""
    for said, option in OPTIONS.items():
        problems = problems.replace(said, option)
    return problems.splitlines()
