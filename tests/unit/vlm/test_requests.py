import base64
import json
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from hps.document import Image, Region
from hps.layout.labels import CLASS_IDS
from hps.recognition import RecognitionOptions, VlmTask, plan
from hps.vlm.requests import (
    DIALECTS,
    ChatDialect,
    batches,
    chat_request,
    encoded_request,
    image_data_url,
    work_rank,
)


def page(width: int = 400, height: int = 300) -> Image:
    return np.full((height, width, 3), 90, np.uint8)


def task(image: Image | None = None, **options: float) -> VlmTask:
    return plan(page() if image is None else image, None, RecognitionOptions(**options)).tasks[0]  # type: ignore[arg-type]


def sent_size(body: bytes) -> tuple[int, int]:
    payload = json.loads(body)["messages"][0]["content"][0]["image_url"]["url"].split(",")[1]
    image = cv2.imdecode(np.frombuffer(base64.b64decode(payload), np.uint8), cv2.IMREAD_COLOR)
    return image.shape[1], image.shape[0]


def test_a_request_names_only_what_is_given() -> None:
    body = chat_request(task(), "vlm", "data:,")
    assert set(body) == {
        "model",
        "messages",
        "temperature",
        "max_completion_tokens",
        "skip_special_tokens",
        "mm_processor_kwargs",
    }
    assert (body["temperature"], body["max_completion_tokens"]) == (0, 4096)


def test_the_encoded_request_carries_the_image() -> None:
    body = json.loads(encoded_request(task(repetition_penalty=1.1), "vlm", DIALECTS["llama-cpp-server"]).body())
    head, payload = body["messages"][0]["content"][0]["image_url"]["url"].split(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(payload).startswith(b"\x89PNG")
    assert (body["repetition_penalty"], body["max_tokens"]) == (1.1, 4096)


@pytest.mark.parametrize(
    ("dialect", "pixels", "sent"),
    [
        ("vllm-server", 15_000, (200, 150)),  # 120,000 pixels: 30,000 are twice the budget
        ("vllm-server", 3_000, (100, 75)),
        ("vllm-server", 15_001, (400, 300)),
        ("sglang-server", 3_000, (400, 300)),  # its own budget is not ours to know
    ],
)
def test_an_image_far_beyond_its_budget_is_reduced_to_near_it(dialect: str, pixels: int, sent: tuple[int, int]) -> None:
    large = replace(task(), max_pixels=pixels)
    assert sent_size(encoded_request(large, "vlm", DIALECTS[dialect]).body()) == sent


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("options", [{}, {"top_p": 0.5, "min_pixels": 1000, "max_new_tokens": 9}], ids=["plain", "all"])
def test_the_body_is_the_request_with_its_image(dialect: ChatDialect, options: dict[str, Any]) -> None:
    made = task(**options)
    wanted = chat_request(made, "vlm", image_data_url(made.image, dialect), dialect)
    assert json.loads(encoded_request(made, "vlm", dialect).body()) == wanted


def test_what_the_client_decides_is_put_in_late() -> None:
    request = encoded_request(task(), "vlm")
    assert request.has_default_budget
    whole, later = json.loads(request.body()), json.loads(request.body(7, is_stream=True, with_pixel_budget=False))
    del whole["mm_processor_kwargs"]
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    assert later == whole | streamed | {"max_completion_tokens": 7}
    assert not encoded_request(task(max_pixels=1000), "vlm").has_default_budget


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("ocr", (1000, 1000), False),
        ("ocr", (1001, 1000), True),
        ("table", (900, 900), False),
        ("spotting", (9, 9), True),
    ],
)
def test_pages_and_large_blocks_may_be_long(kind: str, size: tuple[int, int], expected: bool) -> None:
    assert encoded_request(replace(task(page(*size)), kind=kind), "vlm").is_long is expected


def test_long_blocks_go_first() -> None:
    boxes = {"a": ("text", (0, 0, 50, 20)), "b": ("text", (0, 30, 300, 90)), "c": ("table", (0, 100, 300, 160))}
    regions = [Region(CLASS_IDS[label], label, 0.9, box) for label, box in boxes.values()]
    made = plan(page(), regions, RecognitionOptions())
    assert [each.block_index for each in sorted(made.tasks, key=work_rank)] == [2, 1, 0]
    assert [[each.block_index for each in batch] for batch in batches(made.tasks)] == [[2, 1, 0]]


def test_a_batch_is_full_at_a_megabyte() -> None:
    sides = (100, 700, 650, 120)  # of squares; 1.4 and 1.2 MiB, and two small ones
    made = [replace(task(page(side, side)), block_index=index) for index, side in enumerate(sides)]
    assert [[each.block_index for each in batch] for batch in batches(made)] == [[1], [2], [3, 0]]
    assert batches([]) == []
