import json
from pathlib import Path

import numpy as np
import pytest

from hps.layout import backends
from hps.layout.fixed import load_fixed
from hps.layout.page_inputs import LayoutInput
from hps.settings import SettingsError, load

BOX = [22, 0.9, 0.1, 0.2, 0.5, 0.6, 0]


def written(folder: Path, content: object) -> Path:
    path = folder / "boxes.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_boxes_are_scaled_to_each_original_page(tmp_path: Path) -> None:
    backend = load_fixed(written(tmp_path, [BOX]))
    small = np.zeros((8, 8, 3), np.uint8)
    pages = [LayoutInput(small, 1000, 2000), LayoutInput(small, 100, 100)]
    first, second = (finish() for finish in backend.detect(pages))
    np.testing.assert_allclose(first.rows, [[22, 0.9, 100, 400, 500, 1200, 0]], rtol=1e-5)
    np.testing.assert_allclose(second.rows[0, 2:6], [10, 20, 50, 60], rtol=1e-5)


def test_pages_of_a_listed_size_have_boxes_of_their_own(tmp_path: Path) -> None:
    other = [21, 0.8, 0, 0, 1, 1, 0]
    backend = load_fixed(written(tmp_path, {"boxes": [BOX], "pages": {"100x200": [other, other], "7x7": []}}))
    small = np.zeros((8, 8, 3), np.uint8)
    sizes = [(100, 200), (200, 100), (7, 7)]
    found = [finish().rows for finish in backend.detect([LayoutInput(small, *size) for size in sizes])]
    assert [len(rows) for rows in found] == [2, 1, 0]
    np.testing.assert_allclose(found[0][1], [21, 0.8, 0, 0, 100, 200, 0])


def test_no_boxes_is_a_blank_page(tmp_path: Path) -> None:
    backend = load_fixed(written(tmp_path, {"boxes": [], "delay_s": 0.0}))
    (finish,) = backend.detect([LayoutInput(np.zeros((8, 8, 3), np.uint8), 8, 8)])
    assert finish().rows.shape == (0, 7)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        {"delay_s": 1},
        {"boxes": [BOX], "dealy_s": 1},
        {"boxes": [BOX], "delay_s": -1},
        {"boxes": [BOX], "pages": [BOX]},
        {"boxes": [BOX], "pages": {"100": [BOX]}},
        {"boxes": [BOX], "pages": {"100x200": [BOX[:6]]}},
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
    settings = load({"HPS_LAYOUT_BACKEND": "fixed", "HPS_LAYOUT_FIXED_FILE": str(written(tmp_path, [BOX]))})
    assert backends.create(settings).inputs == backends.page_inputs(settings)
    assert not backends.has_orientation(settings)


def test_fixed_without_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match="file of boxes"):
        backends.create(load({"HPS_LAYOUT_BACKEND": "fixed"}))


def test_an_unknown_name_gets_the_choices() -> None:
    with pytest.raises(SettingsError, match=r"HPS_LAYOUT_BACKEND.*'fixed'"):
        load({"HPS_LAYOUT_BACKEND": "tpu"})


def test_transformers_prepares_pages_for_the_models_that_are_configured() -> None:
    bare = load({"HPS_LAYOUT_BACKEND": "transformers", "HPS_LAYOUT_MODEL_DIR": "/models/layout"})
    assert not backends.has_orientation(bare) and not backends.has_unwarping(bare)
    full = load(
        {
            "HPS_LAYOUT_BACKEND": "transformers",
            "HPS_ORIENTATION_MODEL_DIR": "/models/orientation",
            "HPS_UNWARPING_MODEL_DIR": "/models/unwarping",
        }
    )
    assert backends.has_orientation(full) and backends.has_unwarping(full)
    page = np.zeros((50, 30, 3), np.uint8)
    forms = backends.page_inputs(full)
    assert forms.detection.prepared(page).shape == (800, 800, 3)
    assert forms.orientation and forms.orientation.prepared(page).shape == (224, 224, 3)
    assert forms.unwarping and forms.unwarping.prepared(page).shape == (712, 488, 3)
