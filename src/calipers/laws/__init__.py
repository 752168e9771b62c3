"""The algebra of likelihood-ratio laws: discretise, tilt, multiply, read off, always from a known side."""
