"""The backend on real classes of transformers, with tiny random weights read from local directories."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from transformers import AutoModelForObjectDetection

from hps.document import Detections
from hps.embedded.models import ModelFileError
from hps.layout.page_inputs import LayoutInput, Stretched, layout_input
from hps.layout.pytorch.detection import SCORE_FLOOR, Batches, DetectionModel, fixed_batches, load_detection, use_cache
from tests.torch import checkpoints
from tests.torch.reference import processor

FORM = Stretched(160, 160)
SIZES = [(300, 400), (1000, 700), (64, 90)]  # height, width


def page(height: int, width: int, seed: int) -> LayoutInput:
    noise = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return layout_input(FORM, cv2.resize(noise, (width, height)))


PAGES = [page(height, width, seed) for seed, (height, width) in enumerate(SIZES)]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    models = {"v2": checkpoints.layout_v2, "v3": checkpoints.layout_v3}
    return {name: checkpoints.saved(make(), tmp_path_factory.mktemp(name)) for name, make in models.items()}


def loaded(directory: Path, **options: Any) -> DetectionModel:
    return load_detection(directory, FORM, "cpu", 4, **({"compiled": False, "cache": None} | options))


@pytest.fixture(scope="module", params=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(version: str, directories: dict[str, Path]) -> DetectionModel:
    return loaded(directories[version])


def detect(model: DetectionModel, pages: list[LayoutInput]) -> list[Detections]:
    return [finish() for finish in model.detect(pages)]


def test_rows_have_their_ranges(model: DetectionModel) -> None:
    for found, (height, width) in zip(detect(model, PAGES), SIZES, strict=True):
        classes, scores, orders = found.rows[:, 0], found.rows[:, 1], found.rows[:, 6]
        assert found.rows.dtype == np.float32 and len(found.rows) > 5
        assert set(classes) <= set(range(25))
        assert ((scores > SCORE_FLOOR) & (scores <= 1)).all()
        assert (np.diff(scores) <= 0).all()
        assert ((orders >= 0) & (orders < checkpoints.QUERIES)).all()
        x1, y1, x2, y2 = found.rows[:, 2:6].T
        assert (x1 <= x2).all() and (y1 <= y2).all()
        centres_x, centres_y = (x1 + x2) / 2, (y1 + y2) / 2
        assert ((centres_x >= 0) & (centres_x <= width)).all() and ((centres_y >= 0) & (centres_y <= height)).all()


def test_only_v3_gives_outlines(model: DetectionModel, version: str) -> None:
    for found in detect(model, PAGES):
        assert len(found.polygons) == (len(found.rows) if version == "v3" else 0)
        assert all(polygon.shape[1] == 2 and polygon.dtype == np.float32 for polygon in found.polygons)


def test_a_page_is_read_the_same_alone_and_in_a_batch(model: DetectionModel) -> None:
    together = detect(model, [*PAGES, PAGES[0]])
    for found, alone in zip(together, [detect(model, [one])[0] for one in [*PAGES, PAGES[0]]], strict=True):
        np.testing.assert_allclose(found.rows, alone.rows, rtol=1e-3, atol=1e-2)
        assert len(found.polygons) == len(alone.polygons)


def test_an_earlier_batch_leaves_no_trace(model: DetectionModel) -> None:
    before = detect(model, [PAGES[1]])[0]
    detect(model, [PAGES[2], PAGES[0], PAGES[0]])
    np.testing.assert_array_equal(detect(model, [PAGES[1]])[0].rows, before.rows)


def test_rows_agree_with_transformers(model: DetectionModel, version: str, directories: dict[str, Path]) -> None:
    """From the picture on: our preparation and decoding, against the model called as its documentation says."""
    theirs = AutoModelForObjectDetection.from_pretrained(directories[version])
    pictures = np.stack([one.image[..., ::-1] for one in PAGES])
    with torch.inference_mode():
        raw = theirs(pixel_values=torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255)
    reference = processor(f"pp_doclayout_{version}", f"PPDocLayout{version.upper()}ImageProcessor")
    reference.size = {"height": FORM.height, "width": FORM.width}
    expected = reference.post_process_object_detection(raw, threshold=SCORE_FLOOR, target_sizes=SIZES)
    for found, wanted in zip(detect(model, PAGES), expected, strict=True):
        scores = np.sort(wanted["scores"].numpy())[::-1]
        np.testing.assert_allclose(found.rows[:, 1], scores, rtol=1e-3)
        by_score = np.argsort(-wanted["scores"].numpy(), kind="stable")
        clear = np.flatnonzero((np.diff(scores, prepend=2) < -1e-4) & (np.diff(scores, append=-1) < -1e-4))
        assert len(clear) > 5
        np.testing.assert_array_equal(found.rows[clear, 0], wanted["labels"].numpy()[by_score][clear])
        np.testing.assert_allclose(found.rows[clear, 2:6], wanted["boxes"].numpy()[by_score][clear], atol=0.05)
        np.testing.assert_array_equal(found.rows[clear, 6], wanted["order_seq"].numpy()[by_score][clear])


def test_a_wrong_size_is_refused(model: DetectionModel) -> None:
    with pytest.raises(ValueError, match="instead of"):
        model.detect([LayoutInput(np.zeros((32, 32, 3), np.uint8), 32, 32)])


class TestOutlines:
    """Masks with a known shape, instead of what random weights draw."""

    def outline(self, mask: np.ndarray, size: int = 200) -> np.ndarray:
        class Fixed:
            def to(self, **_: Any) -> "Fixed":
                return self

            def __call__(self, pixel_values: Any) -> Any:
                raw = type("Raw", (), {})()
                raw.logits = torch.full((1, 1, 25), -9.0)
                raw.logits[0, 0, 22] = 4
                raw.pred_boxes = torch.tensor([[[0.5, 0.5, 0.5, 0.5]]])
                raw.order_logits = torch.zeros(1, 1, 1)
                raw.out_masks = torch.from_numpy(np.where(mask, 0.3, -0.3))[None, None]
                return raw

        model = DetectionModel(Fixed(), "cpu", fixed_batches(1), Stretched(160, 160), compiled=False)
        (found,) = detect(model, [LayoutInput(np.zeros((160, 160, 3), np.uint8), size, size)])
        (outline,) = found.polygons
        return outline

    def test_a_full_mask_is_the_box(self) -> None:
        outline = self.outline(np.ones((40, 40), bool))
        assert sorted(outline.tolist()) == [[50, 50], [50, 149], [149, 50], [149, 149]]

    def test_half_a_mask_is_half_a_box(self) -> None:
        mask = np.zeros((40, 40), bool)
        mask[:, :20] = True
        outline = self.outline(mask)
        assert outline[:, 0].max() == 99 and outline[:, 1].max() == 149

    def test_an_empty_mask_is_the_box(self) -> None:
        outline = self.outline(np.zeros((40, 40), bool))
        assert sorted(outline.tolist()) == [[50, 50], [50, 150], [150, 50], [150, 150]]


class TestLoading:
    def test_a_name_of_a_hub_is_refused(self) -> None:
        with pytest.raises(ModelFileError, match=r"HPS_LAYOUT_MODEL_DIR.*not downloaded"):
            loaded(Path("PaddlePaddle/PP-DocLayoutV3_safetensors"))

    def test_another_kind_of_model_is_named(self, tmp_path: Path) -> None:
        directory = checkpoints.saved(checkpoints.orientation(), tmp_path)
        with pytest.raises(ModelFileError, match=r"pp_lcnet.*pp_doclayout_v3"):
            loaded(directory)

    def test_missing_weights_are_named(self, directories: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "config.json").write_bytes((directories["v3"] / "config.json").read_bytes())
        with pytest.raises(ModelFileError, match=r"model\.safetensors"):
            loaded(tmp_path)

    def test_damaged_weights_are_refused(self, directories: dict[str, Path], tmp_path: Path) -> None:
        (tmp_path / "config.json").write_bytes((directories["v3"] / "config.json").read_bytes())
        (tmp_path / "model.safetensors").write_bytes(b"no weights")
        with pytest.raises(ModelFileError, match="cannot be loaded"):
            loaded(tmp_path)

    def test_a_broken_configuration_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(ModelFileError, match="not JSON"):
            loaded(tmp_path)


def test_compiled_code_only_meets_the_sizes_that_it_was_compiled_for() -> None:
    assert [fixed_batches(8).size_for(pages) for pages in range(1, 9)] == [1, 8, 8, 8, 8, 8, 8, 8]
    assert [fixed_batches(1).size_for(1), Batches(8).size_for(3)] == [1, 3]


class Brightness(torch.nn.Module):
    """The smallest model with outputs of the right shapes: what it says of a page depends on its brightness alone."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(-3, 3, 6 * 25).reshape(6, 25))

    def forward(self, pixel_values: Any) -> Any:
        bright = pixel_values.mean(dim=(1, 2, 3)).reshape(-1, 1, 1)
        order = (bright * torch.arange(36.0).reshape(6, 6)).triu(1)
        return SimpleNamespace(
            logits=self.scale * bright,
            pred_boxes=torch.full((1, 6, 4), 0.5) * bright,
            order_logits=order,
            out_masks=bright.unsqueeze(-1) - torch.linspace(0, 1, 6 * 20 * 20).reshape(6, 20, 20),
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # of its own functions
def test_compiled_code_says_the_same(tmp_path: Path) -> None:
    form = Stretched(32, 32)
    pages = [LayoutInput(np.full((32, 32, 3), brightness, np.uint8), 100, 80) for brightness in (40, 120, 200)]
    plain = DetectionModel(Brightness(), "cpu", Batches(4), form, compiled=False)
    use_cache(tmp_path / "cache")
    compiled = DetectionModel(Brightness(), "cpu", fixed_batches(4), form, compiled=True)
    compiled.warm_up()
    with torch.compiler.set_stance("fail_on_recompile"):
        for few in (pages[:1], pages[:2], pages):
            for found, expected in zip(detect(compiled, few), detect(plain, few), strict=True):
                np.testing.assert_allclose(found.rows, expected.rows, rtol=1e-4, atol=1e-4)
                assert len(found.polygons) == len(expected.polygons)
    assert list((tmp_path / "cache").rglob("*.py"))


def test_without_a_c_compiler_the_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ValueError, match="HPS_LAYOUT_COMPILE needs a C compiler"):
        load_detection(tmp_path, FORM, "cpu", 1, compiled=True, cache=None)
