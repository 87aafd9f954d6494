"""Decoding against transformers' own post-processing, on the same outputs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hps.layout.pytorch.decoding import BOX, CLASS, ORDER, QUERY, SCORE, decoded, packed_masks, reading_order
from tests.torch.reference import processor

PAGES, QUERIES, CLASSES = 3, 50, 25
SIZES = [(2339, 1654), (800, 1200), (97, 64)]  # height, width


def outputs(seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Any:
        return torch.rand(shape, generator=generator)

    return SimpleNamespace(
        logits=random(PAGES, QUERIES, CLASSES) * 8 - 6,
        pred_boxes=torch.cat([random(PAGES, QUERIES, 2), random(PAGES, QUERIES, 2) * 0.3], dim=-1),
        order_logits=torch.randn((PAGES, QUERIES, QUERIES), generator=generator) * 3,
        out_masks=torch.zeros(PAGES, QUERIES, 20, 20),
    )


def rows_of(raw: Any) -> Any:
    return decoded(raw.logits, raw.pred_boxes, raw.order_logits)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("version", ["v2", "v3"])
def test_rows_agree_with_transformers(version: str, threshold: float) -> None:
    raw = outputs()
    reference = processor(f"pp_doclayout_{version}", f"PPDocLayout{version.upper()}ImageProcessor")
    expected = reference.post_process_object_detection(raw, threshold=threshold, target_sizes=SIZES)
    for rows, page, (height, width) in zip(rows_of(raw).numpy(), expected, SIZES, strict=True):
        kept = rows[rows[:, SCORE] >= threshold]
        kept = kept[np.argsort(kept[:, ORDER], kind="stable")]
        # Two classes of one query share their place, and may come either way round.
        kept = kept[np.lexsort((-kept[:, SCORE], kept[:, ORDER]))]
        theirs = np.lexsort((-page["scores"].numpy(), page["order_seq"].numpy()))
        np.testing.assert_array_equal(kept[:, ORDER], page["order_seq"].numpy()[theirs])
        np.testing.assert_array_equal(kept[:, CLASS], page["labels"].numpy()[theirs])
        np.testing.assert_allclose(kept[:, SCORE], page["scores"].numpy()[theirs], rtol=1e-6)
        boxes = kept[:, BOX] * [width, height, width, height]
        np.testing.assert_allclose(boxes, page["boxes"].numpy()[theirs], atol=1e-3)


def test_best_rows_come_first_and_say_their_query() -> None:
    raw = outputs()
    rows = rows_of(raw)
    assert rows.shape == (PAGES, QUERIES, 8)
    assert (rows[:, 1:, SCORE] <= rows[:, :-1, SCORE]).all()
    for row in rows[1, :5]:
        query, label = int(row[QUERY]), int(row[CLASS])
        assert row[SCORE] == pytest.approx(raw.logits[1, query, label].sigmoid().item())


def test_the_reading_order_of_the_specification_s_example() -> None:
    logits = torch.full((1, 3, 3), -1e4)
    logits[0, 0, 1], logits[0, 0, 2], logits[0, 1, 2] = 2, -3, -1
    assert reading_order(logits).tolist() == [[1, 2, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_the_reading_order_is_a_permutation(seed: int) -> None:
    order = reading_order(torch.randn((4, QUERIES, QUERIES), generator=torch.Generator().manual_seed(seed)))
    assert (order.sort(dim=1).values == torch.arange(QUERIES)).all()


def test_the_reading_order_ignores_the_lower_triangle() -> None:
    logits = torch.randn((2, QUERIES, QUERIES), generator=torch.Generator().manual_seed(3))
    assert torch.equal(reading_order(logits), reading_order(logits.triu(1) - 1e4 * torch.ones_like(logits).tril()))


def test_half_precision_is_decoded_in_single() -> None:
    raw = outputs()
    rows = decoded(raw.logits.half(), raw.pred_boxes.half(), raw.order_logits.half())
    assert rows.dtype == torch.float32
    assert (rows[:, :, SCORE] - rows_of(raw)[:, :, SCORE]).abs().max() < 5e-3


@pytest.mark.parametrize("columns", [8, 20, 200])
def test_masks_survive_their_packing(columns: int) -> None:
    masks = torch.randn((2, 4, 6, columns), generator=torch.Generator().manual_seed(5))
    packed = packed_masks(masks, torch.tensor([1, 0, 1]), torch.tensor([3, 0, 3])).numpy()
    assert packed.shape == (3, 6, -(-columns // 8))
    expected = np.stack([masks[1, 3].numpy(), masks[0, 0].numpy(), masks[1, 3].numpy()]) > 0
    np.testing.assert_array_equal(np.unpackbits(packed, axis=-1, count=columns), expected)
