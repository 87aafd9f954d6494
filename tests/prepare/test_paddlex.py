"""HPS_RUNTIME=paddlex: the official SDK, as the official kit's prepare.sh leaves it (SPEC G.3)."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.fakes.hub import FakeHub
from tests.prepare.kit import Kit
from tests.prepare.test_prepare import RELEASE, VLM, fails, succeeds

FOLDER = f"paddlex_hps_{RELEASE}_sdk"
CONFIG = """\
pipeline_name: PaddleOCR-VL-1.6
batch_size: 64
SubModules:
  LayoutDetection:
    module_name: layout_detection
    model_name: PP-DocLayoutV3
  VLRecognition:
    module_name: vl_recognition
    model_name: PaddleOCR-VL-1.6-0.9B
    model_dir: null
    genai_config:
      backend: native
some_key_of_a_later_version: 1
"""


def sdk(config: str = CONFIG, folder: str = FOLDER, extra: tuple[str, bytes] | None = None) -> bytes:
    packed = io.BytesIO()
    files = {f"{folder}/server/pipeline_config.yaml": config.encode(), f"{folder}/server/server.sh": b"#!/bin/bash\n"}
    files |= {f"{folder}/version.txt": b"3.6"} | dict([extra] if extra else [])
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def kit(kit: Kit, hub: FakeHub) -> Kit:
    hub.sdks[f"v3.6/{FOLDER}.tar.gz"] = sdk()
    kit.environ["HPS_RUNTIME"] = "paddlex"
    # Its image has a known need of disk, which the machine of the tests may not have.
    kit.environ["HPS_PADDLEX_IMAGE"] = "registry.example/paddlex:1"
    return kit


def config(kit: Kit) -> Path:
    return kit.root / FOLDER / "server/pipeline_config.yaml"


async def test_fresh_and_twice(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    expected = CONFIG.replace(
        "      backend: native\n",
        "      backend: vllm-server\n      server_url: http://paddleocr-vlm-server:8080/v1\n",
    )
    assert config(kit).read_text() == expected
    assert (kit.root / FOLDER / "server/server.sh").exists()
    env = kit.env()
    assert (env["HPS_PIPELINE_NAME"], env["HPS_SDK_DIR"]) == (RELEASE, FOLDER)
    assert env["HPS_VLM_URL"] == "http://paddleocr-vlm-server:8080"
    assert set(hub.requests) == {VLM, f"v3.6/{FOLDER}.tar.gz"}  # the official pipeline brings its own layout model
    assert (kit.root / f"models/{RELEASE}/pipeline_config.yaml").exists()
    before = kit.state()
    hub.requests.clear()
    await succeeds(kit)
    assert kit.state() == before
    assert not hub.requests


async def test_another_version(kit: Kit, hub: FakeHub) -> None:
    hub.sdks = {f"v3.7/{FOLDER}.tar.gz": sdk()}
    await fails(kit, f"/sdks/v3.6/{FOLDER}.tar.gz: no such SDK (HTTP 404)")
    kit.environ["HPS_PADDLEX_VERSION"] = "3.7"
    await succeeds(kit)


async def test_another_address_later(kit: Kit) -> None:
    await succeeds(kit)
    kit.environ["HPS_VLM_URL"] = "http://gpu:9000"
    await succeeds(kit)
    assert "server_url: http://gpu:9000/v1\n" in config(kit).read_text()


async def test_from_our_runtime_to_the_official_one_and_back(kit: Kit) -> None:
    await succeeds(kit)
    kit.environ["HPS_RUNTIME"] = ""
    (kit.root / ".env").write_text((kit.root / ".env").read_text().replace("HPS_RUNTIME=paddlex", "HPS_RUNTIME="))
    await succeeds(kit)
    assert kit.env()["HPS_SDK_DIR"] == f"./models/{RELEASE}"
    kit.environ["HPS_RUNTIME"] = "paddlex"
    await succeeds(kit)
    assert kit.env()["HPS_SDK_DIR"] == FOLDER


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (sdk()[:-200], ["no archive that can be unpacked"]),
        (b"<html>not found</html>", ["no archive that can be unpacked"]),
        (sdk(folder="other"), [f"holds no {FOLDER}/server/pipeline_config.yaml"]),
        (sdk(CONFIG.replace("    model_name: PaddleOCR-VL-1.6-0.9B\n", "")), ["names no VLM"]),
        (sdk(CONFIG.replace("PaddleOCR-VL-1.6-0.9B", "Other")), ["asks for the VLM Other", "HPS_VLM_MODEL_NAME=Other"]),
        (sdk(extra=("../evil", b"x")), ["no archive that can be unpacked"]),
    ],
)
async def test_sdks_that_cannot_be_used(kit: Kit, hub: FakeHub, archive: bytes, words: list[str]) -> None:
    hub.sdks[f"v3.6/{FOLDER}.tar.gz"] = archive
    done = await kit.prepare()
    assert done.code == 1 and all(word in done.said for word in words), done.said
    assert not (kit.root / FOLDER).exists() and not (kit.root / ".env").exists()
    hub.sdks[f"v3.6/{FOLDER}.tar.gz"] = sdk()
    await succeeds(kit)


async def test_another_archive_than_the_first(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    config(kit).unlink()
    for file in sorted((kit.root / FOLDER).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (kit.root / FOLDER).rmdir()
    hub.sdks[f"v3.6/{FOLDER}.tar.gz"] = sdk(CONFIG + "# changed\n")
    await fails(kit, "is not the file that was prepared first")
