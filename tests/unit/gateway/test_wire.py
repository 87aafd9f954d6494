from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from gateway import wire


@given(body=st.binary(max_size=300), model=st.text(max_size=20))
def test_protobuf_reads_what_is_written(body: bytes, model: str) -> None:
    header = service_pb2.ModelInferRequest(model_name=model, id="r")
    header.inputs.add(name="input", datatype="BYTES", shape=[1, 1])
    header.parameters["p"].int64_param = -5
    expected = service_pb2.ModelInferRequest()
    expected.CopyFrom(header)
    expected.raw_input_contents.append(len(body).to_bytes(4, "little") + body)
    assert service_pb2.ModelInferRequest.FromString(wire.with_input(header.SerializeToString(), body)) == expected


def response(*contents: bytes) -> bytes:
    message = service_pb2.ModelInferResponse(model_name="m", model_version="1", id="r", raw_output_contents=contents)
    message.parameters["a"].double_param = 1.5
    message.parameters["b"].bool_param = True
    message.outputs.add(name="output", datatype="BYTES", shape=[1, 1])
    return bytes(message.SerializeToString())


@given(body=st.binary(max_size=300))
def test_what_protobuf_writes_is_read(body: bytes) -> None:
    assert wire.output(response(len(body).to_bytes(4, "little") + body)) == body


@pytest.mark.parametrize("size", [0, 127, 128, 2**14, 2**21, 2**21 + 1])
def test_sizes_around_the_steps_of_the_length_field(size: int) -> None:
    body = bytes(size)
    assert wire.output(response(len(body).to_bytes(4, "little") + body)) == body
    written = service_pb2.ModelInferRequest.FromString(wire.with_input(b"", body))
    assert written.raw_input_contents[0][4:] == body


@pytest.mark.parametrize(
    "message",
    [b"", response(), response(b"\1\0\0\0x", b"\1\0\0\0y"), response(b"\2\0\0\0x"), response(b"\1")],
)
def test_an_answer_without_exactly_one_element(message: bytes) -> None:
    with pytest.raises(ValueError, match="output"):
        wire.output(message)


def test_fields_of_any_wire_type_are_skipped() -> None:
    unknown = b"\x78\x01" + b"\x79" + bytes(8) + b"\x7d" + bytes(4)  # field 15 as varint, 64 and 32 bits
    assert wire.output(unknown + response(b"\1\0\0\0x")) == b"x"


@given(noise=st.binary(max_size=60))
def test_noise_is_an_error_or_an_answer_but_nothing_else(noise: bytes) -> None:
    with suppress(ValueError):
        wire.output(noise)


def test_an_answer_that_is_cut_off() -> None:
    whole = response(b"\4\0\0\0text")
    for end in range(len(whole)):
        try:
            assert wire.output(whole[:end]) == b"text"  # cut after the contents, where nothing is missing
        except ValueError:
            continue
