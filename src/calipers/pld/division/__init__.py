"""Sums divided by a number that depends on the data, and rates that move with it."""
