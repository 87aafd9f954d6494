import numpy as np

from hps.embedded.boxes import as_boxes
from hps.embedded.picodet import LABELS, STRIDES, candidates, decoded

TEXT, TABLE = LABELS.index("text"), LABELS.index("table")


def scores(*rows: dict[int, float]) -> np.ndarray:
    table = np.zeros((len(rows), len(LABELS)), np.float32)
    for row, values in zip(table, rows, strict=True):
        for index, value in values.items():
            row[index] = value
    return table


def test_distances_are_expectations_in_strides() -> None:
    outputs = []
    for stride, cells in zip(STRIDES, (7600, 1900, 475, 130), strict=True):
        distances = np.full((1, cells, 4, 8), -100, np.float32)
        distances[..., 2] = 100  # two strides on every side
        outputs += [np.full((1, cells, len(LABELS)), stride, np.float32), distances.reshape(1, cells, 32)]
    found, boxes = decoded(outputs)
    assert boxes.shape == (10105, 4)
    # The second cell of the second row of the coarsest map.
    index = 7600 + 1900 + 475 + 11
    assert found[index, 0] == 64
    np.testing.assert_allclose(boxes[index], [96 - 128, 96 - 128, 96 + 128, 96 + 128], atol=1e-3)


def test_duplicates_of_a_class_are_suppressed() -> None:
    boxes = as_boxes([(0, 0, 100, 100), (0, 0, 100, 90), (0, 200, 100, 300)])
    kept = candidates(scores({TEXT: 0.8}, {TEXT: 0.9}, {TEXT: 0.5}), boxes)
    assert [one.box.tolist() for one in kept] == [[0, 0, 100, 90], [0, 200, 100, 300]]


def test_better_class_wins_over_what_it_covers() -> None:
    boxes = as_boxes([(0, 0, 100, 100), (10, 10, 90, 40)])
    kept = candidates(scores({TABLE: 0.9}, {TEXT: 0.8}), boxes)
    assert [one.label for one in kept] == ["table"]


def test_weak_and_tiny_boxes_are_dropped() -> None:
    boxes = as_boxes([(0, 0, 100, 100), (200, 200, 202, 300)])
    assert candidates(scores({TEXT: 0.4}, {TEXT: 0.9}), boxes) == []
