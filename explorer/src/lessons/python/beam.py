"""Greedy and beam search: the best first step does not lead to the best output."""

import regard

pipeline = regard.load("spelling")
answers = {beam: pipeline("emit", beam=beam) for beam in (1, 2, 4, 8)}
for beam, answer in answers.items():
    print(f"beam {beam}: {answer.text:12} log p {answer.logp:.3f}")
