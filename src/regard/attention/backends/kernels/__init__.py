"""Triton kernels for attention.

`short_*`: sentences that fit one tile; `long_attention`, `forward` and `backward_*`: any length;
`additive_attention`: Bahdanau's score; `rotary_tiles`: rotary positions. Only `launch` is imported
before a CUDA tensor needs a kernel.
"""
