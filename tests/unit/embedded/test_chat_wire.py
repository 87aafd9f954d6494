import base64
import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image as PillowImage

from hps.embedded.chat_wire import ChatError, decoded_picture, question

PICTURE = base64.b64encode(b"picture").decode()


def body(*parts: dict[str, object], **fields: object) -> bytes:
    request: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    return json.dumps(request | fields).encode()


def image(url: str = f"data:image/jpeg;base64,{PICTURE}") -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


TEXT: dict[str, object] = {"type": "text", "text": "OCR:"}


def encoded(picture: PillowImage.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return buffer.getvalue()


def test_question_of_a_vision_request() -> None:
    asked = question(body(image(), TEXT, temperature=0.0, max_completion_tokens=4096, mm_processor_kwargs={}))
    assert (asked.model, asked.prompt, asked.picture, asked.is_stream) == ("m", "OCR:", b"picture", False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (body(TEXT), "one image_url part, not 0"),
        (body(image(), image()), "one image_url part, not 2"),
        (body(image("http://host/a.jpg")), "data URL"),
        (body(image("data:image/jpeg;base64,@@@")), "not valid base64"),
        (body(image(), messages=[]), "messages"),
        (body(image(), messages=[{"role": "system", "content": []}]), "role"),
    ],
)
def test_malformed_request_says_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(ChatError, match=message) as caught:
        question(content)
    assert caught.value.status == 400


def test_message_never_repeats_the_picture() -> None:
    with pytest.raises(ChatError) as caught:
        question(body(image(), TEXT, stream=PICTURE))
    assert PICTURE not in json.dumps(caught.value.body())


def test_picture_is_bgr() -> None:
    picture = decoded_picture(encoded(PillowImage.new("RGB", (3, 2), (250, 100, 0))))
    assert picture.shape == (2, 3, 3)
    assert picture[0, 0].tolist() == [0, 100, 250]


def test_transparency_becomes_white() -> None:
    assert decoded_picture(encoded(PillowImage.new("RGBA", (2, 2), (0, 0, 0, 0)))).min() == 255


def test_jpeg_is_read() -> None:
    assert decoded_picture(encoded(PillowImage.new("L", (2, 2), 0), "JPEG")).max() == 0


@pytest.mark.parametrize("data", [b"", b"not a picture", encoded(PillowImage.new("L", (99, 99)))[:60]])
def test_undecodable_picture(data: bytes) -> None:
    with pytest.raises(ChatError, match="cannot be decoded"):
        decoded_picture(data)


@pytest.mark.parametrize("size", [(8200, 8200), (15000, 15000)])
def test_too_many_pixels_are_refused_before_decoding(size: tuple[int, int]) -> None:
    header = encoded(PillowImage.fromarray(np.zeros((1, 1), np.uint8)))
    # The size in the PNG header, with its check sum, is all that is read.
    ihdr = b"IHDR" + struct.pack(">II", *size) + header[24:29]
    forged = header[:12] + ihdr + struct.pack(">I", zlib.crc32(ihdr)) + header[33:]
    with pytest.raises(ChatError) as caught:
        decoded_picture(forged)
    assert caught.value.status == 400
