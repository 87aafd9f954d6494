from io import BytesIO

import cv2
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hps import crops
from hps.document import Image, IntBox
from hps.errors import InvalidInput

NEVER_MERGED = frozenset({"image", "table"})
LEFT: IntBox = (0, 0, 200, 300)
RIGHT: IntBox = (220, 0, 420, 250)


def grey(width: int, height: int, value: int = 100) -> Image:
    return np.full((height, width, 3), value, np.uint8)


def merged(*blocks: tuple[str, IntBox]) -> list[tuple[int, int | None, tuple[int, ...]]]:
    placed = crops.merge_blocks([label for label, _ in blocks], [box for _, box in blocks], NEVER_MERGED)
    return [(block.index, block.group, block.members) for block in placed]


# ---- crops ----


def test_a_plain_crop_is_a_view() -> None:
    page = grey(100, 80)
    cut = crops.crop(page, (10, 20, 60, 50))
    assert cut.shape == (30, 50, 3)
    assert np.shares_memory(cut, page)


def test_a_polygon_that_is_the_box_changes_nothing() -> None:
    page = grey(100, 80)
    corners = ((10.0, 20.0), (60.0, 20.0), (60.0, 50.0), (10.0, 50.0))
    assert np.shares_memory(crops.crop(page, (10, 20, 60, 50), corners), page)


def test_outside_the_polygon_is_white_and_the_page_stays() -> None:
    page = grey(100, 80)
    cut = crops.crop(page, (10, 20, 60, 50), ((10.0, 20.0), (60.0, 20.0), (10.0, 50.0)))
    assert cut[0, 0].tolist() == [100] * 3
    assert cut[-1, -1].tolist() == [255] * 3
    assert (page == 100).all()


def test_a_small_picture_does_not_hold_the_page() -> None:
    page = grey(100, 80)
    small, large = crops.crop(page, (0, 0, 20, 20)), crops.crop(page, (0, 0, 100, 70))
    assert not np.shares_memory(crops.kept_beyond_page(small, page), page)
    assert crops.kept_beyond_page(large, page) is large


# ---- merging ----


def test_text_continues_in_the_next_column() -> None:
    assert merged(("text", LEFT), ("text", RIGHT)) == [(0, 0, (0, 1)), (1, 0, ())]


@pytest.mark.parametrize(
    "second",
    [
        ("paragraph_title", RIGHT),
        ("text", (261, 0, 461, 250)),  # too far
        ("text", (220, 300, 420, 550)),  # starts below the end of the first
        ("text", (200, 0, 400, 250)),  # touches
    ],
)
def test_other_blocks_beside_stand_by_themselves(second: tuple[str, IntBox]) -> None:
    assert [members for _, _, members in merged(("text", LEFT), second)] == [(0,), (1,)]


def test_text_flows_around_a_picture_only() -> None:
    upper, lower = ("text", (0, 0, 300, 100)), ("text", (0, 105, 200, 205))
    picture, distant = ("image", (210, 60, 300, 200)), ("image", (210, 600, 300, 700))
    assert (0, 0, (0, 2)) in merged(upper, picture, lower)
    assert (0, 0, (0,)) in merged(upper, distant, lower)


def test_a_block_between_members_comes_after_the_group() -> None:
    order = [index for index, _, _ in merged(("text", LEFT), ("table", (0, 400, 300, 500)), ("text", RIGHT))]
    assert order == [0, 2, 1]


def test_a_tall_stack_is_not_fused() -> None:
    assert merged(("text", (0, 0, 100, 300)), ("text", (110, 0, 210, 250))) == [(0, None, (0,)), (1, None, (1,))]


def test_stacked_images_are_aligned_as_one() -> None:
    stack = crops.stacked([grey(10, 5), grey(20, 5), grey(40, 5)], ["center", "right"])
    assert stack.shape == (15, 40, 3)
    first_dark = [int(np.flatnonzero(stack[y, :, 0] == 100)[0]) for y in (0, 5, 10)]
    assert first_dark == [25, 20, 0]


def test_one_image_needs_no_stack() -> None:
    image = grey(10, 5)
    assert crops.stacked([image], []) is image


side = st.integers(5, 200)
position = st.integers(0, 300)
box = st.builds(lambda x, y, w, h: (x, y, x + w, y + h), position, position, side, side)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["text", "table", "image", "doc_title"]), box), max_size=8))
def test_merging_loses_no_block_and_no_crop(blocks: list[tuple[str, IntBox]]) -> None:
    placed = merged(*blocks)
    assert sorted(index for index, _, _ in placed) == list(range(len(blocks)))
    assert sorted(member for _, _, members in placed for member in members) == list(range(len(blocks)))
    assert all(members in ((), (index,)) or index == members[0] for index, _, members in placed)


# ---- preparation ----


def test_margins_are_trimmed_to_the_ink() -> None:
    image = grey(100, 50, 255)
    image[10:20, 30:60] = 0
    assert crops.trimmed_margins(image).shape == (10, 30, 3)
    assert crops.trimmed_margins(grey(9, 9)).shape == (9, 9, 3)


def test_a_formula_keeps_its_margins_when_little_is_left() -> None:
    image = grey(100, 50, 255)
    image[10:12, 30:60] = 0
    assert crops.trimmed_formula(image).shape == (50, 100, 3)


def test_small_pages_are_enlarged_for_spotting() -> None:
    assert crops.enlarged_for_spotting(grey(30, 20)).shape == (40, 60, 3)
    assert crops.enlarged_for_spotting(grey(1500, 20)).shape == (20, 1500, 3)


def test_hair_thin_crops_are_padded_until_the_server_takes_them() -> None:
    line = grey(1300, 6)
    padded = crops.padded_to_aspect(line)
    assert padded.shape == (7, 1300, 3)
    crops.smart_resize(*padded.shape[:2], 1, 10**9)
    ordinary = grey(1200, 6)
    assert crops.padded_to_aspect(ordinary) is ordinary


def test_a_token_is_painted_within_its_box() -> None:
    image = grey(200, 100)
    crops.paint_token(image, (50, 20, 150, 80), "[F23]")
    assert image[:, :50].max() == image[:20].max() == 100
    inside = image[20:80, 50:150]
    assert (inside == 255).any()
    assert inside.min() < 50


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000))
def test_sizes_for_the_vlm_are_multiples_within_the_budget(height: int, width: int) -> None:
    low, high = 112_896, 1_003_520
    if max(height, width) > 150 * min(height, width):
        return
    rows, columns = crops.smart_resize(height, width, low, high)
    assert rows % 28 == columns % 28 == 0
    assert low <= rows * columns <= high


def test_an_extreme_aspect_ratio_is_refused() -> None:
    with pytest.raises(InvalidInput, match="200 times"):
        crops.smart_resize(28, 5700, 1, 10**9)


# ---- encoding ----


def test_jpeg_is_pillows_default_byte_for_byte() -> None:
    image = np.random.default_rng(0).integers(0, 256, (37, 61, 3), np.uint8)
    image = np.asarray(cv2.GaussianBlur(image, (5, 5), 2), np.uint8)
    expected = BytesIO()
    PIL.Image.fromarray(image[:, :, ::-1]).save(expected, format="JPEG")
    assert crops.encode_jpeg(image) == expected.getvalue()


def test_png_keeps_every_pixel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)
    decoded = cv2.imdecode(np.frombuffer(crops.encode_png(image[:, 1:]), np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(decoded, image[:, 1:])
