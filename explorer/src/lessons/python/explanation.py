"""Is attention an explanation? Weights against the effect of hiding each letter."""

import regard
from regard.trace import agreement, alignment_matrix, occlusion, record

pipeline = regard.load("spelling")
correlations = {}
for word in ("knight", "attention", "island"):
    trace = record(pipeline, word, search=pipeline.search(beam=1))
    effects = occlusion(pipeline, trace)  # sounds × letters
    weights = alignment_matrix(trace, "mean")  # mean of all cross-attention heads
    correlations[word] = agreement(weights, effects)
    print(f"{word:10} {trace.answer.text:20} rank correlation {correlations[word]:.3f}")
