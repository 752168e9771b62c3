"""Independent oracles for the tests: slow or special routes to the same numbers, sharing no code with the package."""
