"""Kernels of a decoder's step, gathered in `operations`: `recall` (to what was said and read), `residual`, `product`,
`survey` and `advance` (what is said next). `books` is what they read and write; it alone needs no Triton."""
