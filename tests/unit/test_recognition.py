import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hps.document import Image, IntBox, Region
from hps.errors import InvalidRequest
from hps.layout.labels import CLASS_IDS, LABELS
from hps.recognition import (
    DEFAULT_PIXELS,
    PROMPT_LABELS,
    SPOTTING_PIXELS,
    PagePlan,
    RecognitionOptions,
    finish,
    plan,
)

TABLE: IntBox = (20, 20, 380, 280)
PICTURE: IntBox = (100, 100, 200, 180)
PICTURE_PATH = "imgs/img_in_image_box_100_100_200_180.jpg"


def page(width: int = 400, height: int = 300) -> Image:
    return np.full((height, width, 3), 90, np.uint8)


def region(label: str, box: IntBox, polygon: Any = None) -> Region:
    return Region(CLASS_IDS[label], label, 0.9, box, polygon=polygon)


def planned(*regions: Region, **options: Any) -> PagePlan:
    return plan(page(), regions, RecognitionOptions(**options))


@pytest.mark.parametrize(
    ("label", "prompt"),
    [
        ("text", "OCR:"),
        ("footnote", "OCR:"),
        ("formula_number", "OCR:"),
        ("table", "Table Recognition:"),
        ("chart", "Chart Recognition:"),
        ("seal", "Seal Recognition:"),
        ("inline_formula", "Formula Recognition:"),
        ("display_formula", "Formula Recognition:"),
    ],
)
def test_the_label_decides_the_prompt(label: str, prompt: str) -> None:
    made = planned(region(label, (10, 10, 200, 60)), use_chart_recognition=True, use_seal_recognition=True)
    assert [task.prompt for task in made.tasks] == [prompt]


@pytest.mark.parametrize("label", ["image", "header_image", "footer_image", "chart", "seal"])
def test_pictures_are_not_read_unless_asked(label: str) -> None:
    made = planned(region(label, (10, 10, 200, 60)))
    assert made.tasks == ()
    assert list(made.pictures) == [made.blocks[0].image_path] == [f"imgs/img_in_{label}_box_10_10_200_60.jpg"]


def test_pictures_are_read_and_shown_when_asked() -> None:
    made = planned(region("image", PICTURE), use_ocr_for_image_block=True)
    assert [task.prompt for task in made.tasks] == ["OCR:"]
    assert list(made.pictures) == [PICTURE_PATH]


def test_a_chart_that_is_read_is_no_picture() -> None:
    assert planned(region("chart", PICTURE), use_chart_recognition=True).pictures == {}


def test_merged_text_is_one_task() -> None:
    columns = region("text", (10, 10, 100, 100)), region("text", (110, 10, 200, 100))
    made = planned(*columns)
    assert [task.image.shape[:2] for task in made.tasks] == [(180, 90)]
    assert [block.group_id for block in made.blocks] == [0, 0]
    apart = planned(*columns, merge_layout_blocks=False)
    assert len(apart.tasks) == 2
    assert [block.group_id for block in apart.blocks] == [None, None]


def test_rect_mode_ignores_polygons() -> None:
    triangle = region("text", (10, 10, 110, 60), ((10.0, 10.0), (110.0, 10.0), (10.0, 60.0)))
    assert planned(triangle).tasks[0].image.max() == 255
    rect = planned(triangle, shape_mode="rect")
    assert rect.tasks[0].image.max() == 90
    assert rect.blocks[0].polygon is None


# ---- tables ----


def test_a_picture_in_a_table_hides_behind_a_token_and_comes_back() -> None:
    made = planned(region("table", TABLE), region("image", PICTURE))
    (token,) = made.table_pictures[0]
    assert (made.tasks[0].image == 255).any()
    blocks = finish(made, {0: f"<td>{token}</td><td>[F77]</td>"})
    assert [block.label for block in blocks] == ["table"]
    assert blocks[0].content == f'<td><img src="{PICTURE_PATH}" alt="Image"" /></td><td>[F77]</td>'
    assert list(made.pictures) == [PICTURE_PATH]


def test_the_text_of_a_hidden_picture_follows_it() -> None:
    made = planned(region("table", TABLE), region("image", PICTURE), use_ocr_for_image_block=True)
    (token,) = made.table_pictures[0]
    assert [task.block_index for task in made.tasks] == [0, 1]
    assert finish(made, {0: token, 1: "inside"})[0].content.endswith(" />\n\ninside\n\n")


def test_a_picture_too_small_for_a_token_only_goes() -> None:
    made = planned(region("table", TABLE), region("image", (100, 100, 120, 180)))
    assert made.table_pictures == {0: {}}
    assert made.swallowed == {1}
    assert np.shares_memory(made.tasks[0].image, made.tasks[0].image.base)


def test_a_picture_across_the_edge_of_a_table_stays() -> None:
    made = planned(region("table", (20, 20, 380, 150)), region("image", PICTURE))
    assert made.swallowed == frozenset()


def test_many_pictures_have_different_tokens_without_confusable_digits() -> None:
    pictures = [region("image", (25 * n, 0, 25 * n + 25, 30)) for n in range(16)]
    made = plan(page(), [region("table", (0, 0, 400, 100)), *pictures], RecognitionOptions())
    tokens = list(made.table_pictures[0])
    assert len(set(tokens)) == 16
    assert not set("".join(tokens)) & set("019")


# ---- without layout ----


@pytest.mark.parametrize("label", PROMPT_LABELS)
def test_without_layout_the_page_is_one_block(label: str) -> None:
    made = plan(page(), None, RecognitionOptions(), label)
    assert [(block.label, block.box) for block in made.blocks] == [(label, (0, 0, 400, 300))]
    assert [task.kind for task in made.tasks] == [label]
    assert made.regions is None


def test_without_layout_an_unknown_label_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="promptLabel"):
        plan(page(), None, RecognitionOptions(), "poem")


# ---- budgets and sampling ----


def budget(label: str, **options: Any) -> tuple[int, int]:
    task = plan(page(), None, RecognitionOptions(**options), label).tasks[0]
    return task.min_pixels, task.max_pixels


def test_pixel_budgets() -> None:
    asked: dict[str, Any] = {"min_pixels": 1000, "vlm_extra_args": {"max_pixels": 5000, "table_max_pixels": 9000}}
    assert budget("ocr") == DEFAULT_PIXELS
    assert budget("ocr", **asked) == (1000, 5000)
    assert budget("table", **asked) == (1000, 9000)
    assert budget("spotting", **asked) == SPOTTING_PIXELS


def test_extra_arguments_override_the_request() -> None:
    options = RecognitionOptions(temperature=0.5, max_new_tokens=10, vlm_extra_args={"temperature": 0.1, "other": "x"})
    sampling = plan(page(), None, options).tasks[0].sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.skip_special_tokens) == (0.1, 10, True)


def test_spotting_keeps_location_tokens() -> None:
    assert not plan(page(), None, RecognitionOptions(), "spotting").tasks[0].sampling.skip_special_tokens


@pytest.mark.parametrize(
    "extra",
    [
        {"skip_special_tokens": False},
        {"temperature": "hot"},
        {"temperature": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"repetition_penalty": 0},
        {"min_pixels": True},
        {"max_pixels": 0},
        {"table_max_pixels": 10.5},
        {"max_new_tokens": float("inf")},
    ],
)
def test_bad_extra_arguments_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(extra))):
        RecognitionOptions(vlm_extra_args=extra)


# ---- memory, properties ----


def test_planning_copies_no_page() -> None:
    large = np.zeros((3000, 2000, 3), np.uint8)
    regions = [region("text", (0, 100 * n, 2000, 100 * n + 90)) for n in range(29)]
    tracemalloc.start()
    try:
        made = plan(large, [*regions, region("image", (0, 2900, 200, 2990))], RecognitionOptions())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(made.tasks) == 29
    assert peak < large.nbytes / 20


positions = st.tuples(st.integers(0, 150), st.integers(0, 150), st.integers(151, 400), st.integers(151, 300))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(region, st.sampled_from(LABELS), positions), max_size=8), st.booleans(), st.booleans())
def test_every_block_is_finished_once_and_no_crop_exceeds_the_page(
    regions: list[Region], is_read: bool, is_merged: bool
) -> None:
    made = planned(*regions, use_ocr_for_image_block=is_read, merge_layout_blocks=is_merged)
    for task in made.tasks:
        members = [b for b in made.blocks if b.group_id == made.blocks[task.block_index].group_id]
        assert task.image.shape[1] <= 400
        assert task.image.shape[0] <= 300 * max(1, len(members))
    contents = {task.block_index: f"text {task.block_index}" for task in made.tasks}
    finished = finish(made, contents)
    assert len(finished) == len(made.blocks) - len(made.swallowed)
    assert all(block.image_path in made.pictures for block in finished if block.image_path)
