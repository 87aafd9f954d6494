from typing import Any

import pytest

from hps.conformance.comparison import differences

CALL = {"n": 2, "prompts": ["OCR:", "Table Recognition:"], "image_hw": [[1, 2], [3, 4]], "kwargs": {"min_pixels": 9}}


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        ({"score": 0.9}, {"score": 0.8999999761581421}),
        ({"polygon_points": [[1.005, 2]]}, {"polygon_points": [[1.0, 2.0]]}),
        ({"spotting_res": {"rec_polys": [[[20.0000001, 1]]]}}, {"spotting_res": {"rec_polys": [[[20, 1]]]}}),
        ({"first_pixel_bgr": [12, 8, 10]}, {"first_pixel_bgr": [10, 10, 10]}),
        ((1, 2), [1, 2]),
        (1.0, 1),
        ({"b": 1, "a": None}, {"a": None, "b": 1}),
    ],
)
def test_agree(got: Any, wanted: Any) -> None:
    assert differences("any", got, wanted) == []


@pytest.mark.parametrize(
    ("got", "wanted", "found"),
    [
        ({"score": 0.9001}, {"score": 0.9}, ["$.score: 0.9001, not 0.9"]),
        ({"polygon_points": [[1.02, 2]]}, {"polygon_points": [[1, 2]]}, ["$.polygon_points[0][0]: 1.02, not 1"]),
        ({"coordinate": [1.005]}, {"coordinate": [1]}, ["$.coordinate[0]: 1.005, not 1"]),
        (True, 1, ["$: True, not 1"]),
        ("1", 1, ["$: '1', not 1"]),
        (None, False, ["$: None, not False"]),
        ([1], [1, 2], ["$: 1 items, not 2"]),
        ({"a": 1}, {"b": 1}, ["$: the key 'b' is missing", "$: the key 'a' should not be there"]),
        (float("nan"), 1, ["$: nan, not 1"]),
    ],
)
def test_differ(got: Any, wanted: Any, found: list[str]) -> None:
    assert differences("any", got, wanted) == found


def test_long_values_are_cut() -> None:
    (line,) = differences("any", "x" * 1000, "y")
    assert line.endswith("(1002 characters), not 'y'")
    assert len(line) < 250


def test_alignments_of_fused_blocks_do_not_count() -> None:
    got = [{"index": 0, "merge_aligns": ["left"]}]
    assert differences("block_merging", got, [{"index": 0, "merge_aligns": None}]) == []


def test_order_and_batching_of_vlm_calls_do_not_count() -> None:
    ours = [
        {"n": 1, "prompts": ["Table Recognition:"], "image_hw": [(3, 4)], "kwargs": {"min_pixels": 9}},
        {"n": 1, "prompts": ["OCR:"], "image_hw": [(1, 2)], "kwargs": {"min_pixels": 9, "use_cache": True}},
    ]
    assert differences("crop_and_prompt", {"vlm_calls": ours, "blocks": []}, {"vlm_calls": [CALL], "blocks": []}) == []


def test_a_vlm_call_too_few_counts() -> None:
    ours = {"vlm_calls": [CALL | {"prompts": ["OCR:"], "image_hw": [[1, 2]]}], "blocks": []}
    assert differences("crop_and_prompt", ours, {"vlm_calls": [CALL], "blocks": []}) == ["$.tasks: 1 items, not 2"]


def test_of_refused_requests_place_and_clause_count() -> None:
    error = {"loc": ["file"], "type": "missing", "msg": "Field required"}
    wanted = {"ok": False, "errorCode": 422, "errorMsg": "theirs", "errors": [error]}
    got = wanted | {"errorMsg": "ours", "errors": [error | {"type": "other", "loc": ("file",)}]}
    assert differences("request_validation", got, wanted) == []
    got = wanted | {"errors": [error | {"msg": "No file"}]}
    assert differences("request_validation", got, wanted) == ["$.errors[0].msg: 'No file', not 'Field required'"]


def test_of_corrected_http_answers_only_status_and_code_count() -> None:
    got = {"status": 400, "body": {"logId": "GEN", "errorCode": 400, "errorMsg": "ours"}}
    assert differences("gateway_http", got, {"status": 400, "errorCode": 400}) == []
    assert differences("gateway_http", got, {"status": 400, "errorCode": 422}) == ["$.errorCode: 400, not 422"]


def test_order_of_image_names_does_not_count() -> None:
    got = {"markdown": "m", "markdown_image_keys": ["b", "a"]}
    wanted = {"markdown": "m", "markdown_image_keys": ["a", "b"], "output_image_keys": None}
    assert differences("end_to_end_page", got, wanted) == []
