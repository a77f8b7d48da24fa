"""Topics of documents, after a fit: words, stability, prediction of the rest of a document, numbers of topics."""

from bayeslab.topics.completion import choose_topics, document_completion
from bayeslab.topics.summaries import match_topics, top_words

__all__ = ["choose_topics", "document_completion", "match_topics", "top_words"]
