"""Batches of a given size, or cut at one: a record that joins displaces others."""
