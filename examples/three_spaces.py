"""Three spaces: inputs, attention and outputs may all have different widths; and why scores are
divided by √d."""

import torch

from regard import MultiHead
from regard.attention import attend_columns

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
D_X, D_Z, D_ATTN, D_OUT = 5, 7, 6, 4
L_X, L_Z = 3, 8

# One head. Queries come from a sequence X of width 5, keys and values from a context Z of width 7.
attention = MultiHead(width=D_X, heads=1, context=D_Z, attention=D_ATTN, values=D_OUT, out=D_OUT)
attention.out.weight.data, attention.out.bias.data = (
    torch.eye(D_OUT),
    torch.zeros(D_OUT),
)  # values are the output
x, z = torch.randn(1, L_X, D_X), torch.randn(1, L_Z, D_Z)
together = attention(x, z)
print(f"X: {L_X} vectors of width {D_X}; Z: {L_Z} of width {D_Z}; compared in width {D_ATTN}")
print(f"output: {together.shape[1]} vectors of width {together.shape[2]}, one for each query\n")
assert together.shape == (1, L_X, D_OUT)

# One query at a time, as the idea is told; all in parallel, as it is run. It is the same.
for i in range(L_X):
    q = attention.queries(x[0, i])
    scores = attention.keys(z[0]) @ q / D_ATTN**0.5
    alpha = scores.exp() / scores.exp().sum()
    assert torch.allclose(alpha @ attention.values(z[0]), together[0, i])
print("one query at a time = all in parallel")

# Those who write vectors as columns let matrices act from the left: Q = W_q X + b_q 1.
w_q, w_k, w_v = attention.queries, attention.keys, attention.values
columns = attend_columns(
    *(w.weight @ m[0].T + w.bias[:, None] for w, m in ((w_q, x), (w_k, z), (w_v, z)))
)
assert columns.shape == (D_OUT, L_X)
assert torch.allclose(columns, together[0].T)
print("columns = rows, transposed\n")

# With plain sums for weights and one matrix for all, attention is a rough projection: Σ ⟨k, q⟩ k =
# (Kᵀ K) q. It is a true one exactly when the keys are orthonormal.
keys = torch.linalg.qr(torch.randn(D_X, 2)).Q.T
rough = (keys @ x[0, 0]) @ keys
assert torch.allclose((keys @ rough) @ keys, rough)  # to project again changes nothing

# Numbers uniform in (−a, a): the variance of their dot product is d · a⁴/9. Divided by √d it is
# a⁴/9, whatever d.
a = 1.5
print(f"variance of x · y, numbers uniform in (−{a}, {a}); a⁴/9 = {a**4 / 9:.4f}")
print("     d       x · y   x · y / √d")
for d in (4, 16, 64, 256):
    left, right = (torch.empty(20_000, d).uniform_(-a, a) for _ in range(2))
    dot = (left * right).sum(1)
    plain, scaled = dot.var().item(), (dot / d**0.5).var().item()
    print(f"  {d:4} {plain:11.2f} {scaled:12.4f}")
    assert abs(plain / d / (a**4 / 9) - 1) < 0.05
    assert abs(scaled / (a**4 / 9) - 1) < 0.05
