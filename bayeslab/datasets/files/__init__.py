"""Files of text, and corpora in the formats of other programs."""
