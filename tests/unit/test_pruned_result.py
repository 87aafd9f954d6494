import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.document import Block, ModelSettings, ParsedPage, Region, Spotting
from hps.errors import InvalidInput
from hps.pruned_result import parsed_page, to_dict

BOX = (10, 20, 110, 70)
SQUARE = ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0))
REGION = Region(22, "text", 0.75, BOX, 1, SQUARE)
BLOCK = Block("text", BOX, "hello", group_id=0, polygon=SQUARE)


def page(*blocks: Block, **values: Any) -> ParsedPage:
    return ParsedPage(
        **{"width": 200, "height": 300, "blocks": blocks, "settings": ModelSettings(), "regions": ()} | values
    )


def sent(*blocks: Block, **values: Any) -> dict[str, Any]:
    """The page as JSON, as a client would send it back."""
    result: dict[str, Any] = json.loads(json.dumps(to_dict(page(*blocks, **values))))
    return result


def test_order_counts_the_labels_that_are_read_in_order() -> None:
    labels = ["text", "table", "seal", "header", "formula_number", "mystery", "figure_title"]
    items = to_dict(page(*(Block(label, BOX) for label in labels)))["parsing_res_list"]
    assert [item["block_order"] for item in items] == [1, None, 2, None, 3, 4, None]


def test_ignored_labels_have_no_order() -> None:
    settings = ModelSettings(markdown_ignore_labels=("text",))
    items = to_dict(page(Block("text", BOX), Block("number", BOX), settings=settings))["parsing_res_list"]
    assert [item["block_order"] for item in items] == [None, 1]


def test_a_block_without_a_group_reports_its_position() -> None:
    items = to_dict(page(Block("text", BOX, group_id=1), Block("text", BOX)))["parsing_res_list"]
    assert [item["group_id"] for item in items] == [1, 1]
    assert "global_block_id" not in items[0]


def test_parts_that_a_page_lacks_are_absent() -> None:
    assert list(to_dict(page(regions=None))) == ["page_count", "width", "height", "model_settings", "parsing_res_list"]


def test_all_parts() -> None:
    preprocessing = {"model_settings": {"use_doc_orientation_classify": True, "use_doc_unwarping": False}, "angle": 90}
    result = sent(BLOCK, regions=(REGION,), spotting=Spotting((SQUARE,), ("a",)), doc_preprocessor=preprocessing)
    assert result["spotting_res"] == {"rec_polys": [[list(point) for point in SQUARE]], "rec_texts": ["a"]}
    assert result["doc_preprocessor_res"] == preprocessing
    assert result["layout_det_res"]["boxes"] == [
        {
            "cls_id": 22,
            "label": "text",
            "score": 0.75,
            "coordinate": list(BOX),
            "order": 1,
            "polygon_points": [list(point) for point in SQUARE],
        }
    ]


def test_formatted_contents() -> None:
    blocks = (Block("doc_title", BOX, "T"), Block("header", BOX, "H"))
    items = to_dict(page(*blocks, settings=ModelSettings(format_block_content=True)))["parsing_res_list"]
    assert [item["block_content"] for item in items] == ["# T", "H"]


# ---- back from the client ----

CONTENTS = st.text(max_size=20).filter(lambda text: not text.startswith("#"))
LABELS = st.sampled_from(["text", "table", "image", "seal", "chart", "paragraph_title", "mystery"])
BOXES = st.tuples(*[st.integers(0, 5000)] * 4)
BLOCKS = st.lists(st.builds(Block, LABELS, BOXES, CONTENTS, st.none() | st.integers(0, 9), st.none() | st.just(SQUARE)))
SETTINGS = st.builds(
    ModelSettings,
    use_layout_detection=st.booleans(),
    use_chart_recognition=st.booleans(),
    merge_layout_blocks=st.booleans(),
    markdown_ignore_labels=st.lists(LABELS, max_size=2).map(tuple),
)


@given(BLOCKS, SETTINGS, st.booleans(), st.none() | st.integers(1, 9))
def test_what_was_sent_comes_back(blocks: list[Block], settings: ModelSettings, spots: bool, count: int | None) -> None:
    regions = (REGION,) if settings.use_layout_detection else None
    spotting = Spotting((SQUARE,), ("a",)) if spots else None
    pruned = sent(*blocks, settings=settings, regions=regions, spotting=spotting, page_count=count)
    parsed = parsed_page(pruned)
    assert to_dict(parsed) == pruned
    assert parsed.settings == settings
    assert [block.content for block in parsed.blocks] == [block.content for block in blocks]


@pytest.mark.parametrize(
    ("content", "stripped"),
    [("# Title", "Title"), ("###  A\nB", "A\nB"), ("#tag", "#tag"), ("a # b", "a # b"), ("# # a", "# a"), ("#", "#")],
)
def test_heading_marks_are_removed(content: str, stripped: str) -> None:
    assert parsed_page(sent(Block("text", BOX, content))).blocks[0].content == stripped


def test_pictures_have_their_names_again() -> None:
    labels = ["image", "seal", "chart", "header_image", "text"]
    parsed = parsed_page(sent(*(Block(label, BOX) for label in labels)))
    names = ["imgs/img_in_image_box_10_20_110_70.jpg", "imgs/img_in_seal_box_10_20_110_70.jpg"]
    assert [block.image_path for block in parsed.blocks] == [
        *names,
        "imgs/img_in_chart_box_10_20_110_70.jpg",
        None,
        None,
    ]
    read = parsed_page(sent(Block("chart", BOX), settings=ModelSettings(use_chart_recognition=True)))
    assert read.blocks[0].image_path is None


def test_settings_of_another_release_come_back_as_they_were() -> None:
    pruned = sent(BLOCK)
    del pruned["model_settings"]["merge_layout_blocks"]
    pruned["model_settings"]["novel"] = {"a": 1}
    assert parsed_page(pruned).settings == ModelSettings()
    assert to_dict(parsed_page(pruned)) == pruned


@pytest.mark.parametrize(
    "key", ["page_count", "width", "height", "model_settings", "parsing_res_list", "layout_det_res"]
)
def test_a_missing_key_is_named_with_its_page(key: str) -> None:
    pruned = sent(BLOCK)
    del pruned[key]
    with pytest.raises(InvalidInput) as raised:
        parsed_page(pruned, position=4)
    assert raised.value.message == f"pages[4].prunedResult: the key '{key}' is missing"


def test_layout_may_be_missing_where_it_was_off() -> None:
    pruned = sent(BLOCK, settings=ModelSettings(use_layout_detection=False), regions=None)
    assert not parsed_page(pruned).settings.use_layout_detection


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["width"], "wide", ": the key 'width' has the wrong type (str)"),
        (["height"], True, ": the key 'height' has the wrong type (bool)"),
        (["model_settings"], [], ": the key 'model_settings' has the wrong type (list)"),
        (["model_settings", "use_chart_recognition"], 3, ".model_settings: 'use_chart_recognition' must be a boolean"),
        (["model_settings", "markdown_ignore_labels"], [1], "'markdown_ignore_labels' must be a list of strings"),
        (["parsing_res_list", 0], 5, ".parsing_res_list[0] must be an object"),
        (["parsing_res_list", 0, "block_content"], None, "[0]: the key 'block_content' has the wrong type (NoneType)"),
        (["parsing_res_list", 0, "block_bbox"], [1, 2, 3], "[0]: 'block_bbox' must be four numbers"),
        (["parsing_res_list", 0, "block_bbox"], [1, 2, 3, float("inf")], "[0]: 'block_bbox' must be four numbers"),
        (["parsing_res_list", 0, "block_bbox"], [1, 2, 3, float("nan")], "[0]: 'block_bbox' must be four numbers"),
        (["parsing_res_list", 0, "group_id"], "a", "[0]: 'group_id' must be an integer"),
        (["parsing_res_list", 0, "block_polygon_points"], [[1]], "'block_polygon_points' must be a list of [x, y]"),
    ],
)
def test_a_wrong_value_is_named(path: list[Any], value: Any, message: str) -> None:
    pruned = sent(BLOCK)
    place: Any = pruned
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InvalidInput) as raised:
        parsed_page(pruned)
    assert message in raised.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*to_dict(page()), *to_dict(page(BLOCK))["parsing_res_list"][0]]), JSON)
def test_any_value_is_read_or_refused(key: str, value: Any) -> None:
    pruned = sent(BLOCK)
    (pruned if key in pruned else pruned["parsing_res_list"][0])[key] = value
    try:
        json.dumps(to_dict(parsed_page(pruned)))
    except InvalidInput as error:
        assert error.message.startswith("pages[0].prunedResult")


def test_global_ids_are_written() -> None:
    block = replace(BLOCK, global_block_id=7, global_group_id=3, title_level=2)
    item = to_dict(page(block))["parsing_res_list"][0]
    assert (item["global_block_id"], item["global_group_id"]) == (7, 3)
    assert "title_level" not in item
