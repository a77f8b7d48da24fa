"""States of hidden Markov models and linear systems, after a fit."""

from bayeslab.states.forecasting import forecast
from bayeslab.states.summaries import filtered_states, most_probable_path, smoothed_states

__all__ = ["filtered_states", "forecast", "most_probable_path", "smoothed_states"]
