"""The algebra of likelihood-ratio PLDs: discretize, tilt, multiply, read off, always from a known side."""
