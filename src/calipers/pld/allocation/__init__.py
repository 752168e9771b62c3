"""A record allocated to one of many rounds: thrown, replaced, shuffled, displaced, or changing sides."""
