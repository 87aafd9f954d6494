import argparse
import base64
import json
from pathlib import Path

import pytest

from hps import cli
from hps.bench import command, documents, page_mix
from hps.bench.measure import Plan

SAMPLES = Path(__file__).parents[3] / "samples"
VLM = "http://127.0.0.1:1,http://127.0.0.1:2"


def arguments(*given: str) -> argparse.Namespace:
    return cli._parser().parse_args(["bench", "--vlm", VLM, *given])


def plan(*given: str) -> Plan:
    return command.plan_of(arguments(*given))


def test_options_become_a_plan() -> None:
    made = plan("--concurrency", "1,8", "--rate", "2.5", "--direct", "", "--set", "HPS_COORDINATORS=2")
    assert made.vlm_urls == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert (made.concurrencies, made.rates, made.direct) == ((1, 8), (2.5,), ())
    assert made.environ == {"HPS_COORDINATORS": "2"}
    assert made.paddlex is None
    assert plan("--peer", "paddlex").paddlex == Path(".venv-paddlex/bin/python").absolute()
    assert plan("--pdf-pages", "4").latency_pages == 0


def test_what_makes_no_sense_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run_bench(arguments("--corpus", str(SAMPLES))) == 1
    assert "--corpus needs --url" in capsys.readouterr().err
    assert command.run_bench(arguments("--set", "HPS_COORDINATORS")) == 1
    assert "NAME=VALUE" in capsys.readouterr().err


def test_documents_of_a_folder_with_their_pages() -> None:
    found = {document.name: document for document in documents.of_folder(SAMPLES, {"useChartRecognition": True})}
    assert found["paper-two-columns"].pages == 2
    assert found["invoice"].pages == 1
    body = json.loads(found["invoice"].body)
    assert base64.b64decode(body.pop("file")) == (SAMPLES / "invoice.png").read_bytes()
    assert body == {"fileType": 1, "visualize": False, "useChartRecognition": True}


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no documents"):
        documents.of_folder(tmp_path, {})


def test_the_mix_as_documents() -> None:
    mix = page_mix.pages(5)
    assert [document.pages for document in documents.of_mix(mix, {})] == [1] * 5
    assert [document.pages for document in documents.of_mix(mix, {}, pdf_pages=2)] == [2, 2, 1]
