import numpy as np
import pytest

from hps.embedded.line_recognition import MAX_WIDTH, decoded, line_tensor


def probabilities(*classes: int) -> np.ndarray:
    table = np.full((len(classes), 4), 0.05, np.float32)
    table[np.arange(len(classes)), classes] = 0.9
    return table


@pytest.mark.parametrize(
    ("classes", "text"),
    [((1, 1, 2), "ab"), ((1, 0, 1), "aa"), ((0, 0), ""), ((1, 3, 2), "a b"), ((), "")],
)
def test_greedy_ctc(classes: tuple[int, ...], text: str) -> None:
    found, score = decoded(probabilities(*classes), ("a", "b"))
    assert found == text
    assert score == pytest.approx(0.9 if text else 0.0)


@pytest.mark.parametrize(("size", "width"), [((48, 100), 128), ((24, 16), 64), ((2, 4000), MAX_WIDTH)])
def test_line_is_48_high_and_padded(size: tuple[int, int], width: int) -> None:
    assert line_tensor(np.zeros((*size, 3), np.uint8)).shape == (1, 3, 48, width)
