"""Figures that ArviZ lacks: results in, matplotlib Axes out."""

from bayeslab.plots.calibration import plot_calibration
from bayeslab.plots.forecasts import plot_forecast
from bayeslab.plots.populations import plot_ancestry, plot_divergence
from bayeslab.plots.posteriors import plot_comparison, plot_elbo, plot_posteriors
from bayeslab.plots.processes import plot_process, plot_process_map
from bayeslab.plots.states import plot_choice, plot_dwell_times, plot_path, plot_states, plot_transitions
from bayeslab.plots.style import styled, use_style
from bayeslab.plots.supervised import plot_decision_boundary, plot_penalty_path
from bayeslab.plots.topics import plot_shares, plot_stability, plot_topics

__all__ = [
    "plot_ancestry",
    "plot_calibration",
    "plot_choice",
    "plot_comparison",
    "plot_decision_boundary",
    "plot_divergence",
    "plot_dwell_times",
    "plot_elbo",
    "plot_forecast",
    "plot_path",
    "plot_penalty_path",
    "plot_posteriors",
    "plot_process",
    "plot_process_map",
    "plot_shares",
    "plot_stability",
    "plot_states",
    "plot_topics",
    "plot_transitions",
    "styled",
    "use_style",
]
