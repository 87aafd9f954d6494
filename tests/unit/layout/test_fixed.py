import json
from pathlib import Path

import numpy as np
import pytest

from hps.layout import backends
from hps.layout.detector import LayoutInput
from hps.layout.fixed import load_fixed

BOX = [22, 0.9, 0.1, 0.2, 0.5, 0.6, 0]


def written(folder: Path, content: object) -> Path:
    path = folder / "boxes.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_boxes_are_scaled_to_each_original_page(tmp_path: Path) -> None:
    backend = load_fixed(written(tmp_path, [BOX]))
    small = np.zeros((8, 8, 3), np.uint8)
    first, second = backend.detect([LayoutInput(small, 1000, 2000), LayoutInput(small, 100, 100)])
    np.testing.assert_allclose(first.rows, [[22, 0.9, 100, 400, 500, 1200, 0]], rtol=1e-5)
    np.testing.assert_allclose(second.rows[0, 2:6], [10, 20, 50, 60], rtol=1e-5)


def test_no_boxes_is_a_blank_page(tmp_path: Path) -> None:
    backend = load_fixed(written(tmp_path, {"boxes": [], "delay_s": 0.0}))
    assert backend.detect([LayoutInput(np.zeros((8, 8, 3), np.uint8), 8, 8)])[0].rows.shape == (0, 7)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        {"delay_s": 1},
        {"boxes": [BOX], "dealy_s": 1},
        {"boxes": [BOX], "delay_s": -1},
        {"boxes": [BOX[:6]]},
        [[22, 0.9, 0.5, 0.2, 0.1, 0.6, 0]],
        [[22, 0.9, 10, 20, 500, 600, 0]],
        [["text", 0.9, 0.1, 0.2, 0.5, 0.6, 0]],
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: object) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=r"boxes\.json"):
        load_fixed(path)


def test_create_loads_by_name(tmp_path: Path) -> None:
    backend = backends.create("fixed", fixed_file=str(written(tmp_path, [BOX])), threads=1)
    assert backend.max_side == backends.input_side("fixed")
    assert not backend.has_orientation


def test_fixed_without_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="file of boxes"):
        backends.create("fixed", fixed_file="", threads=1)


def test_an_unknown_name_gets_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'tpu'.*fixed, onnx"):
        backends.input_side("tpu")
