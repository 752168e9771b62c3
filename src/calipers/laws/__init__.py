"""The algebra of likelihood-ratio laws: discretize, tilt, multiply, read off, always from a known side."""
