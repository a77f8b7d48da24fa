"""Series and measurements with times, from tables with a time index."""
