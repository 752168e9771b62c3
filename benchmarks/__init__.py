"""Calipers beside other accountants: time, answers, memory. Run with ``python -m benchmarks.bench``."""
