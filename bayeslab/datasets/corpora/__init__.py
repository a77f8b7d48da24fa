"""Documents as the data of topic models: from what they come as, and which of their words are kept."""
