"""A record dealt into one of many rounds: thrown, replaced, shuffled, displaced, or changing sides."""
