"""Triton kernels of attention: `short` (a sentence a tile), `forward` and `backward` (any length), `near` (the gradient
of a learned bias near the diagonal), `additive` (Bahdanau's score), `turning` (rotary).

Nothing here is imported before a CUDA tensor asks for it.
"""
