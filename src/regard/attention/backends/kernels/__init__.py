"""Triton kernels of attention: `short` (a sentence a tile), `shaw` (its vectors by distance), `forward` and `backward`
(any length), `near` (the gradient of a learned bias near the diagonal), `additive` (Bahdanau's score), `turning`
(rotary). And those of a decoder's step, gathered in `decoding`: `recall` (to what was said and read), `residual`,
`product`, `survey` and `advance` (what is said next); `books` is what they read and write.

Nothing here but `settings` is imported before a CUDA tensor asks for it.
"""
