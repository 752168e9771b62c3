"""What a law is, where laws come from, and exact pairs of distributions."""
