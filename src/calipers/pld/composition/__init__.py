"""Products of PLDs: tilted transforms, tails, curves, moments, rare large steps."""
