"""Stable tails, FFT powers with an error bound: the ground floor of the mathematics."""
