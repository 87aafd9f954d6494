"""Triton's log without what means nothing."""

import io

from hps.triton.output import Output

LINES = b"""\
I1130 21:45:49.531613 11439 pinned_memory_manager.cc:283] "Pinned memory pool disabled"
E1130 21:45:49.533048 11439 server.cc:241] "CudaDriverHelper has not been initialized."
I1130 21:45:50.547468 11439 model_lifecycle.cc:839] "successfully loaded 'echo'"
I1130 21:45:50.692156 11439 server.cc:604]\x20
+------------------+------+
| Repository Agent | Path |
+------------------+------+

2026-11-30 21:57:33,073 INFO hps.pipeline a line of ours about pinned memory
E1130 21:45:50.700000 11439 model_lifecycle.cc:642] "failed to load 'echo' version 1: Internal: no weights"
"""


def passed_on(lines: bytes, *, gpu: bool = False, detailed: bool = False) -> tuple[list[str], list[str]]:
    stream = io.StringIO()
    output = Output(io.BytesIO(lines), gpu=gpu, detailed=detailed, stream=stream)
    output.join(5)
    return stream.getvalue().splitlines(), output.errors()


def test_noise_of_machines_without_a_gpu_and_tables_are_left_out() -> None:
    lines, _ = passed_on(LINES)
    assert [line.split("] ")[-1] for line in lines] == [
        "\"successfully loaded 'echo'\"",
        "2026-11-30 21:57:33,073 INFO hps.pipeline a line of ours about pinned memory",
        "\"failed to load 'echo' version 1: Internal: no weights\"",
    ]


def test_on_a_gpu_its_lines_mean_something() -> None:
    lines, _ = passed_on(LINES, gpu=True)
    assert any("CudaDriverHelper" in line for line in lines)


def test_details_are_for_those_who_ask() -> None:
    lines, _ = passed_on(LINES, detailed=True)
    assert "| Repository Agent | Path |" in lines


def test_errors_are_remembered() -> None:
    assert passed_on(LINES)[1] == ["failed to load 'echo' version 1: Internal: no weights"]


def test_bytes_that_are_no_text_pass() -> None:
    assert passed_on(b"\xff\xfe\n")[0] == ["\ufffd\ufffd"]


def test_a_reader_that_is_gone_does_not_stop_the_copying() -> None:
    stream = io.StringIO()
    stream.close()
    output = Output(io.BytesIO(LINES), gpu=False, detailed=False, stream=stream)
    output.join(5)
    assert output.errors()
