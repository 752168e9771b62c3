"""Attacks on real implementations: a game, a score, and lower bounds on leakage that hold with a stated confidence."""
