"""Training: from pairs of text to a bundle that works, by one command."""
