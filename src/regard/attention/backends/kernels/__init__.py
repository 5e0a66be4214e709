"""Triton kernels of attention: `short` (a sentence a tile), `shaw` (its vectors by distance), `forward` and `backward`
(any length), `near` (the gradient of a learned bias near the diagonal), `additive` (Bahdanau's score), `turning`
(rotary).

Nothing here but `settings` is imported before a CUDA tensor asks for it.
"""
