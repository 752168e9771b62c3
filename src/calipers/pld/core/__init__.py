"""What a PLD is, where PLDs come from, and exact pairs of distributions."""
