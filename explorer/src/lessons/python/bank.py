"""Bank of the river: the mixed vector of "bank", before and after its query is turned by 90°."""

import torch

from regard import attend
from regard.vectors import cosine

words = torch.tensor([[2.0, 0.4], [0.3, -0.3], [-0.2, -0.4], [0.4, 2.2]], dtype=torch.float64)
bank, river = words[0], words[3]
turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)  # a matrix W_Q

print(f"bank alone:         cosine with river {cosine(bank, river).item():.3f}")
for name, query in (("not turned", bank), ("turned by 90°", turn @ bank)):
    rows = words[None, None]
    mixed = attend(query[None, None, None], rows, rows, score="dot")[0, 0, 0]
    print(f"query {name:13}: cosine with river {cosine(mixed, river).item():.3f}")
