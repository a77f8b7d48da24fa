"""Topics of documents, after a fit: words, stability, prediction of the rest of a document, numbers of topics."""

from bayeslab.topics.completion import choose_topics, document_completion
from bayeslab.topics.documents import document_table
from bayeslab.topics.summaries import match_topics, top_words
from bayeslab.topics.word_coherence import coherence

__all__ = ["choose_topics", "coherence", "document_completion", "document_table", "match_topics", "top_words"]
