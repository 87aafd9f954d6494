"""The two large protobuf messages, written and read without protobuf: it would copy a body three times on each way.

Only the field that holds the tensor's bytes is handled here; everything else of a request is serialised by protobuf
(serialised messages may be concatenated), everything else of an answer is skipped.
"""

import struct
from collections.abc import Iterator

from tritonclient.grpc import service_pb2

RAW_INPUT = service_pb2.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number
RAW_OUTPUT = service_pb2.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number

# Wire types of protobuf, the low 3 bits of a field's tag.
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


def with_input(request: bytes, body: bytes) -> bytes:
    """`request`, a serialised ModelInferRequest without contents, with `body` as its only tensor's only element.

    An element of type BYTES is its length in 4 bytes, little endian, and then the bytes.
    """
    field = _varint(RAW_INPUT << 3 | DELIMITED) + _varint(4 + len(body)) + struct.pack("<I", len(body))
    return b"".join((request, field, body))


def output(response: bytes) -> memoryview:
    """The only element of the only output of a serialised ModelInferResponse. Raises ValueError if it is not so."""
    contents = list(_delimited(response, RAW_OUTPUT))
    if len(contents) != 1 or len(contents[0]) < 4:
        raise ValueError("the answer has no single output")
    (size,) = struct.unpack_from("<I", contents[0])
    if size != len(contents[0]) - 4:
        raise ValueError("the output is not a single BYTES element")
    return contents[0][4:]


def _delimited(message: bytes, number: int) -> Iterator[memoryview]:
    """The values of a length-delimited field at the top level of a message."""
    view = memoryview(message)
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        wire_type = tag & 7
        size = {FIXED64: 8, FIXED32: 4}.get(wire_type, 0)
        if wire_type == VARINT:
            _, at = _read_varint(view, at)
        elif wire_type == DELIMITED:
            size, at = _read_varint(view, at)
        elif size == 0:
            raise ValueError("the answer is not protobuf")
        if at + size > len(view):
            raise ValueError("the answer is cut off")
        if tag >> 3 == number and wire_type == DELIMITED:
            yield view[at : at + size]
        at += size


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where the next thing begins."""
    value = shift = 0
    while at < len(view):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("the answer is cut off")
