"""Products of laws: tilted transforms, tails, curves, moments, rare large steps."""
