"""When an answer of ours agrees with a golden one: the tolerances and exceptions of each group of cases."""

from collections.abc import Callable, Mapping
from typing import Any, Final

SCORE_TOLERANCE: Final = 1e-6  # the reference goes through float32
POLYGON_TOLERANCE: Final = 0.01  # pixels
SPOTTING_TOLERANCE: Final = 1e-6
COLOUR_TOLERANCE: Final = 2  # JPEG

# Numbers below a key with one of these names may differ by so much; all others are exact.
_TOLERANCES: Final[Mapping[str, float]] = {
    "score": SCORE_TOLERANCE,
    "polygon_points": POLYGON_TOLERANCE,
    "block_polygon_points": POLYGON_TOLERANCE,
    "spotting_res": SPOTTING_TOLERANCE,
    "first_pixel_bgr": COLOUR_TOLERANCE,
    "decoded_bgr_first_pixel": COLOUR_TOLERANCE,
}

_LONGEST_SHOWN: Final = 160


def differences(group: str, got: Any, wanted: Any) -> list[str]:
    """What differs, one line each with its place ("$" is the whole answer); empty if the answers agree."""
    comparable = _COMPARABLE.get(group, _unchanged)
    return _differences("$", comparable(got, wanted), comparable(wanted, wanted), 0.0)


def _differences(place: str, got: Any, wanted: Any, tolerance: float) -> list[str]:
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        return _of_objects(place, got, wanted, tolerance)
    if isinstance(wanted, list) and isinstance(got, list | tuple):
        found = [] if len(got) == len(wanted) else [f"{place}: {len(got)} items, not {len(wanted)}"]
        for index, (ours, theirs) in enumerate(zip(got, wanted, strict=False)):
            found += _differences(f"{place}[{index}]", ours, theirs, tolerance)
        return found
    if _is_number(got) and _is_number(wanted):
        agrees = got == wanted or abs(got - wanted) <= tolerance
    else:
        agrees = type(got) is type(wanted) and got == wanted
    return [] if agrees else [f"{place}: {_shown(got)}, not {_shown(wanted)}"]


def _of_objects(place: str, got: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float) -> list[str]:
    found = [f"{place}: the key {key!r} is missing" for key in wanted if key not in got]
    found += [f"{place}: the key {key!r} should not be there" for key in got if key not in wanted]
    for key in wanted:
        if key in got:
            found += _differences(f"{place}.{key}", got[key], wanted[key], _TOLERANCES.get(key, tolerance))
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}… ({len(shown)} characters)"


# ---- what counts in a group: (answer, wanted) → the part of the answer that is compared ----


def _unchanged(answer: Any, wanted: Any) -> Any:
    return answer


def _without_alignments(answer: Any, wanted: Any) -> Any:
    """How fused crops are aligned is the reference's inner matter; the size of the result shows it."""
    return [{key: value for key, value in block.items() if key != "merge_aligns"} for block in answer]


def _with_tasks_unordered(answer: Any, wanted: Any) -> Any:
    """Ours sends blocks one by one: what is asked counts, not how the reference batched it."""
    tasks = []
    for call in answer["vlm_calls"]:
        # The cache is a matter of the reference's own predictor.
        kwargs = {key: value for key, value in call["kwargs"].items() if key != "use_cache"}
        tasks += [
            {"prompt": prompt, "image_hw": list(size), "kwargs": kwargs}
            for prompt, size in zip(call["prompts"], call["image_hw"], strict=True)
        ]
    return {"tasks": sorted(tasks, key=repr), "blocks": answer["blocks"]}


def _without_library_texts(answer: Any, wanted: Any) -> Any:
    """Status, place and clause of each error, without the library's wording around them and the echoed input; of an
    accepted body what was read otherwise than sent, and those defaults that the case names."""
    if answer.get("ok"):
        named = {key: value for key, value in answer.get("defaults", {}).items() if key in wanted.get("parsed", {})}
        return {"ok": True, "parsed": answer["parsed"] | named}
    return {
        "ok": answer.get("ok"),
        "errorCode": answer.get("errorCode"),
        "errors": [{"loc": list(error["loc"]), "msg": error["msg"]} for error in answer.get("errors", [])],
    }


def _status_if_corrected(answer: Any, wanted: Any) -> Any:
    """A corrected answer is our envelope: its status and errorCode are given, its message is our own."""
    if "body" in wanted:
        return answer
    return {"status": answer["status"], "errorCode": answer.get("body", answer).get("errorCode")}


def _without_order_of_images(answer: Any, wanted: Any) -> Any:
    counted = {key: value for key, value in answer.items() if key != "output_image_keys"}
    return counted | {"markdown_image_keys": sorted(answer["markdown_image_keys"])}


_COMPARABLE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "block_merging": _without_alignments,
    "crop_and_prompt": _with_tasks_unordered,
    "request_validation": _without_library_texts,
    "gateway_http": _status_if_corrected,
    "end_to_end_page": _without_order_of_images,
}
