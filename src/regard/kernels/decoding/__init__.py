"""Kernels of a decoding step; `operations` lists them.

`cached_attention`: self-attention over the KV cache and cross-attention; `linear_norm`: linear
layers, residual sums and norms; `topk` and `beam_step`: the search. `buffers` defines
their Protocol and what they read and write, `plain_operations` their reference in torch; these two
need no Triton.
"""
