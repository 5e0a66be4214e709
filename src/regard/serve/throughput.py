"""Throughput: how fast a worker has been, to size batches and to predict waiting times."""

from __future__ import annotations

from regard.serve.request_queue import TextBatch

SMOOTHING = 0.1  # weight of the latest batch in running means
LEAST_TOKENS = 0.25  # per character: long texts with short outputs are work, too


class Throughput:
    """Running means over batches: output tokens per character, and characters per second."""

    def __init__(self) -> None:
        self.tokens_per_cost = 1.0
        self._cost_per_second = 0.0  # of one worker; 0 until the first batch

    def add(self, batch: TextBatch, tokens: int, seconds: float) -> None:
        """Learn from a batch that was answered."""
        if not tokens:  # nothing but errors or empty texts
            return
        mean = self.tokens_per_cost
        mean += SMOOTHING * (tokens / batch.cost - mean)
        self.tokens_per_cost = max(mean, LEAST_TOKENS)
        rate = batch.cost / max(seconds, 1e-6)
        known = self._cost_per_second or rate
        self._cost_per_second = known + SMOOTHING * (rate - known)

    def seconds(self, cost: float, workers: int) -> float:
        """The time that workers need for texts of this cost; 0 while no batch was answered."""
        rate = self._cost_per_second * workers
        return cost / rate if rate else 0.0
