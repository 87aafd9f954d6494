"""The part of OpenAI's chat API that vLLM offers and we need: requests, answers, errors, the picture inside."""

import base64
import binascii
import io
import json
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image as PillowImage
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hps.document import Image

# A crop is at most a page; beyond this the picture would only cost memory.
MAX_PICTURE_PIXELS = 64_000_000
FORMATS = ("JPEG", "PNG")
_UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    PillowImage.DecompressionBombError,
    PillowImage.DecompressionBombWarning,
)


class ChatError(Exception):
    """An answer in OpenAI's error form."""

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class _ImageUrl(BaseModel):
    url: str


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: Literal["text", "image_url"]
    text: str = ""
    image_url: _ImageUrl | None = None


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: Literal["user"]
    content: list[_Part]


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class _ChatRequest(BaseModel):
    """Sampling parameters are accepted and ignored: there is nothing to sample here."""

    model_config = ConfigDict(extra="ignore")
    model: str
    messages: list[_Message] = Field(min_length=1, max_length=1)
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()


@dataclass(frozen=True, slots=True)
class Question:
    """What a request asks; `picture` is still encoded. wants_usage: at the end of a stream; a whole answer has it."""

    model: str
    prompt: str
    picture: bytes
    is_stream: bool
    wants_usage: bool = False


def question(body: bytes) -> Question:
    """Reads the body of a chat request. Raises ChatError 400 that says what is wrong with it."""
    try:
        request = _ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ChatError(400, f"{where}: {first['msg']}" if where else first["msg"], param=where or None) from error
    parts = request.messages[0].content
    urls = [part.image_url.url for part in parts if part.image_url is not None]
    if len(urls) != 1:
        raise ChatError(400, f"The message must carry one image_url part, not {len(urls)}", param="messages")
    prompt = "".join(part.text for part in parts if part.type == "text")
    picture = _picture_bytes(urls[0])
    return Question(request.model, prompt, picture, request.stream, request.stream_options.include_usage)


def _picture_bytes(url: str) -> bytes:
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:image/") and head.endswith(";base64")):
        raise ChatError(400, "image_url must be a data URL: data:image/jpeg;base64,…", param="messages")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ChatError(400, "The image is not valid base64", param="messages") from error


def decoded_picture(picture: bytes) -> Image:
    """JPEG or PNG → BGR uint8, transparency on white. Raises ChatError 400, for too many pixels before decoding."""
    try:
        with PillowImage.open(io.BytesIO(picture), formats=FORMATS) as opened:
            if opened.width * opened.height > MAX_PICTURE_PIXELS:
                raise ChatError(400, f"The image has more than {MAX_PICTURE_PIXELS} pixels", param="messages")
            return _bgr(opened)
    except _UNREADABLE as error:
        raise ChatError(400, "The image cannot be decoded; JPEG and PNG are read", param="messages") from error


def _bgr(picture: PillowImage.Image) -> Image:
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        transparent = picture.convert("RGBA")
        white = PillowImage.new("RGBA", transparent.size, "white")
        picture = PillowImage.alpha_composite(white, transparent)
    return np.ascontiguousarray(np.asarray(picture.convert("RGB"), np.uint8)[:, :, ::-1])


def completion(asked: Question, request_id: str, text: str) -> dict[str, Any]:
    """The answer in one piece. `usage` counts characters: this recogniser has no tokens."""
    return _envelope(asked, request_id, "chat.completion") | {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _usage(asked, text),
    }


def completion_events(asked: Question, request_id: str, text: str) -> bytes:
    """The same as server-sent events: all text in one delta, the end, the usage, `[DONE]`."""
    base = _envelope(asked, request_id, "chat.completion.chunk")
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    chunks = [base | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
    if asked.wants_usage:
        chunks.append(base | {"choices": [], "usage": _usage(asked, text)})
    lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


def _usage(asked: Question, text: str) -> dict[str, int]:
    prompt, written = len(asked.prompt), len(text)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def _envelope(asked: Question, request_id: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request_id}", "object": kind, "created": int(time.time()), "model": asked.model}
