"""From the raw outputs of PP-DocLayoutV2 and V3 to rows, on the device and in a few kernels (SPEC C.3).

transformers' own post-processing does the same with a loop a page and copies of all masks (48 ms for 8 pages on an
H200, more than the model itself).
"""

from typing import Any

import torch

# Columns of a decoded row: class id, score, x1, y1, x2, y2 as fractions of the page, order, number of the query.
CLASS, SCORE, BOX, ORDER, QUERY = 0, 1, slice(2, 6), 6, 7
ROW_SIZE = 8


def decoded(logits: Any, boxes: Any, order_logits: Any) -> Any:
    """float32 (pages, queries, 8), best score first: as many rows as queries, the best pairs of query and class.

    logits: (pages, queries, classes). boxes: (pages, queries, 4), centre x, centre y, width, height as fractions.
    order_logits: (pages, queries, queries), the upper triangle counts. Everything is computed in single precision.
    """
    queries, classes = logits.shape[1:]
    scores, places = torch.topk(logits.float().sigmoid().flatten(1), queries, dim=1)
    query = places // classes
    centres, sizes = boxes.float().split(2, dim=-1)
    corners = torch.cat([centres - sizes / 2, centres + sizes / 2], dim=-1)
    corners = corners.gather(1, query.unsqueeze(-1).expand(-1, -1, 4))
    order = reading_order(order_logits).gather(1, query)
    columns = [(places % classes).float().unsqueeze(-1), scores.unsqueeze(-1), corners]
    return torch.cat([*columns, order.float().unsqueeze(-1), query.float().unsqueeze(-1)], dim=-1)


def reading_order(order_logits: Any) -> Any:
    """int64 (pages, queries): place of each query, a permutation.

    Query j has vote(j) = Σ_{i<j} S[i,j] + Σ_{i>j} (1 - S[j,i]), S = sigmoid(order_logits); fewer votes come first.
    """
    before = order_logits.float().sigmoid().triu(diagonal=1)
    queries = before.shape[1]
    later = torch.arange(queries - 1, -1, -1, device=before.device)
    votes = before.sum(dim=1) + later - before.sum(dim=2)
    # The rank of a vote is the inverse of the permutation that sorts the votes.
    return votes.argsort(dim=1, stable=True).argsort(dim=1)


def packed_masks(masks: Any, pages: Any, queries: Any) -> Any:
    """uint8 (n, rows, ceil(columns / 8)): where mask logits are positive, one bit a pixel, most significant first.

    masks: (pages, queries, rows, columns); pages, queries: int64 (n,). An eighth of the bytes leaves the device.
    """
    inside = masks[pages, queries] > 0
    if missing := -inside.shape[-1] % 8:
        inside = torch.nn.functional.pad(inside, (0, missing))
    bits = inside.unflatten(-1, (-1, 8)).to(torch.uint8)
    weights = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=bits.device)
    return (bits * weights).sum(dim=-1, dtype=torch.uint8)
