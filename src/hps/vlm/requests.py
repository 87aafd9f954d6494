"""Requests to the VLM server: one chat completion for each task (SPEC D.4), in the order of the time that they take.

Pure, and milliseconds of work for a page: for a thread, not the event loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pybase64
from pydantic_core import to_json

from hps import crops
from hps.document import Image
from hps.recognition import DEFAULT_PIXELS, VlmTask
from hps.text_cleanup import repetition_min_chars

_PLACE: Final = "\x7fimage\x7f"  # comes before anything of the client's, and in no model's name
_LONG_PIXELS: Final = 1_000_000
_BATCH_BYTES: Final = 1 << 20  # of pixels; about two milliseconds of encoding


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """What a serving engine calls its parameters. takes_pixel_budget: whether images are resized by our budget."""

    max_tokens_key: str = "max_completion_tokens"
    takes_pixel_budget: bool = False
    takes_jpeg: bool = True


VLLM: Final = ChatDialect(takes_pixel_budget=True)
DIALECTS: Final[Mapping[str, ChatDialect]] = MappingProxyType(
    {
        "vllm-server": VLLM,
        "sglang-server": ChatDialect(),
        "fastdeploy-server": ChatDialect(),
        "mlx-vlm-server": ChatDialect(max_tokens_key="max_tokens"),
        "llama-cpp-server": ChatDialect(max_tokens_key="max_tokens", takes_jpeg=False),
    }
)


def chat_request(task: VlmTask, model: str, image_data_url: str, dialect: ChatDialect = VLLM) -> dict[str, Any]:
    """Body of POST /v1/chat/completions for one task; `image_data_url` holds its encoded image."""
    sampling = task.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": image_data_url}},
                    {"type": "text", "text": task.prompt},
                ],
            }
        ],
        "temperature": 0 if sampling.temperature is None else sampling.temperature,
        dialect.max_tokens_key: sampling.max_tokens,
        "skip_special_tokens": sampling.skip_special_tokens,
    }
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.repetition_penalty is not None:
        body["repetition_penalty"] = sampling.repetition_penalty
    if dialect.takes_pixel_budget:
        body["mm_processor_kwargs"] = {"min_pixels": task.min_pixels, "max_pixels": task.max_pixels}
    return body


def image_data_url(image: Image, dialect: ChatDialect = VLLM) -> str:
    """The image compressed as the server takes it. Milliseconds of work, outside the interpreter lock."""
    encode, media_type = (crops.encode_jpeg, "jpeg") if dialect.takes_jpeg else (crops.encode_png, "png")
    return f"data:image/{media_type};base64,{pybase64.b64encode_as_string(encode(image))}"


@dataclass(frozen=True, slots=True, eq=False)
class BlockRequest:
    """One task as it goes over the wire, but for what the client decides when it sends it.

    head: JSON without its end. is_long: its text may be a thousand tokens. loop_chars: length below which its text is
    never searched for repetition. pixel_budget: (least, most), None where the engine takes none.
    """

    head: bytes
    max_tokens_key: str
    max_tokens: int
    is_greedy: bool
    is_long: bool
    loop_chars: int
    pixel_budget: tuple[int, int] | None

    @property
    def has_default_budget(self) -> bool:
        return self.pixel_budget == DEFAULT_PIXELS

    def body(self, max_tokens: int | None = None, *, is_stream: bool = False, with_pixel_budget: bool = True) -> bytes:
        """The JSON. max_tokens: in place of the task's own. with_pixel_budget False leaves it to the server."""
        end = [f',"{self.max_tokens_key}":{self.max_tokens if max_tokens is None else max_tokens}']
        if self.pixel_budget is not None and with_pixel_budget:
            end.append(',"mm_processor_kwargs":{{"min_pixels":{},"max_pixels":{}}}'.format(*self.pixel_budget))
        if is_stream:
            end.append(',"stream":true,"stream_options":{"include_usage":true}')
        return b"".join((self.head, "".join(end).encode(), b"}"))


def encoded_request(task: VlmTask, model: str, dialect: ChatDialect = VLLM) -> BlockRequest:
    """`chat_request` with its image. An image far beyond its budget is reduced to near it first."""
    image = crops.near_budget(task.image, task.max_pixels) if dialect.takes_pixel_budget else task.image
    body = chat_request(task, model, _PLACE, dialect)
    for decided_later in (dialect.max_tokens_key, "mm_processor_kwargs"):
        body.pop(decided_later, None)
    # The image is put into its place afterwards: a serialiser would look at each of its characters again.
    before, after = to_json(body).split(_PLACE.encode(), 1)
    return BlockRequest(
        head=b"".join((before, image_data_url(image, dialect).encode(), after[:-1])),
        max_tokens_key=dialect.max_tokens_key,
        max_tokens=task.sampling.max_tokens,
        is_greedy=not task.sampling.temperature,
        is_long=is_long(task),
        loop_chars=repetition_min_chars(task.kind),
        pixel_budget=(task.min_pixels, task.max_pixels) if dialect.takes_pixel_budget else None,
    )


def encoded_requests(tasks: Sequence[VlmTask], model: str, dialect: ChatDialect = VLLM) -> list[BlockRequest]:
    """`encoded_request` of each."""
    return [encoded_request(task, model, dialect) for task in tasks]


def is_long(task: VlmTask) -> bool:
    """Whether it may well have more than 1,000 tokens: body text at 144 dpi has one on about 1,000 pixels."""
    height, width = task.image.shape[:2]
    return task.kind == "spotting" or height * width > _LONG_PIXELS


def batches(tasks: Sequence[VlmTask]) -> list[list[VlmTask]]:
    """The tasks, those that take longest first, in batches worth a thread's while to encode: a page of many lines is
    one or two, and a large block is one by itself."""
    found: list[list[VlmTask]] = []
    filled = _BATCH_BYTES
    for task in sorted(tasks, key=work_rank):
        if filled >= _BATCH_BYTES:
            found.append([])
            filled = 0
        found[-1].append(task)
        filled += task.image.nbytes
    return found


def work_rank(task: VlmTask) -> tuple[int, int]:
    """Sorts tasks by the time that they take, longest first: a long one begun last would keep its page waiting.

    Text grows with the area of its crop, and a table writes its structure besides.
    """
    area = task.image.shape[0] * task.image.shape[1]
    return -area * (2 if task.kind in ("table", "chart") else 1), task.block_index
