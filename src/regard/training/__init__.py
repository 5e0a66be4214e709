"""Training: read → choose → tokenize → plan → train → report, from text pairs to a bundle."""
