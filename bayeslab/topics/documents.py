"""What each document is of, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslab.topics.summaries import aligned_topics

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import DataTree


def document_table(tree: DataTree) -> DataFrame:
    """A data frame with a row a document: its tokens, its largest topic, and the mean share of every topic, in columns
    topic_0, topic_1 and so on, in the order of topics that `align` gives.

    tokens: left out where the result does not say which document a token is of. A document without a token has the
        shares of the prior.
    Raises ValueError for a tree without shares.
    """
    import pandas as pd

    aligned = aligned_topics(tree)
    if "shares" not in aligned:
        raise ValueError("the result has no site 'shares' of documents")
    shares = aligned["shares"].transpose("document", "topic").values
    names = aligned["topic"].values
    columns: dict[str, np.ndarray] = {"document": aligned["document"].values}
    constants = tree["constant_data"].to_dataset() if "constant_data" in tree.children else {}
    if "document" in constants:
        columns["tokens"] = np.bincount(constants["document"].values, minlength=len(shares))
    columns["largest"] = names[shares.argmax(1)]
    return pd.DataFrame(columns | {f"topic_{name}": shares[:, place] for place, name in enumerate(names)})
