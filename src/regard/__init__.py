"""Regard trains, runs and shows sequence-to-sequence models built on attention."""
