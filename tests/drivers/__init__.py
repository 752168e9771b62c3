"""Many runs at once, from the command line: grids and random runs of which the tests make a few; NumPy and SciPy do."""
