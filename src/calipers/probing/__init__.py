"""Probes: what an implementation of DP-SGD really does, found by running it as a black box."""
