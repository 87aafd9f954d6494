"""--bundle and --from-bundle: from a host with a network to one without any."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.fakes.hub import FakeHub
from tests.prepare.conftest import UNKNOWN_IMAGES
from tests.prepare.kit import Kit
from tests.prepare.test_paddlex import FOLDER, sdk
from tests.prepare.test_prepare import NEXT, RELEASE, VLM, succeeds

# A network namespace of its own, with nothing in it but a loopback that is down.
NO_NETWORK = ("unshare", "--net")


def namespaces_work() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0
    )


@pytest.fixture
def offline(kit: Kit, tmp_path: Path) -> Kit:
    """A second host, that has only what the bundle brings."""
    if not namespaces_work():
        pytest.skip("this machine does not allow network namespaces (unshare --net)")
    (tmp_path / "offline").mkdir()
    return Kit(tmp_path / "offline/paddleocr-vl-hps", kit.hub)


def unpack_kit(bundle: Path, offline: Kit) -> None:
    """What the README says to do there."""
    subprocess.run(["tar", "-xf", bundle, "paddleocr-vl-hps"], cwd=offline.root.parent, check=True)
    offline.use_venv()


async def test_round_trip(kit: Kit, offline: Kit, hub: FakeHub, tmp_path: Path) -> None:
    bundle = tmp_path / "kit.bundle"
    await succeeds(kit, "--bundle", str(bundle))
    unpack_kit(bundle, offline)
    hub.requests.clear()
    done = await offline.prepare("--from-bundle", str(bundle), before=NO_NETWORK)
    assert done.code == 0 and done.said.rstrip().endswith(NEXT), done.said
    for name, content in hub.repositories[VLM].items():
        file = offline.root / f"models/{RELEASE}/vlm" / name
        assert not file.exists() or file.read_bytes() == content
    assert (offline.root / f"models/{RELEASE}/vlm/model.safetensors").exists()
    names = ("models.lock", "images.lock", f"models/{RELEASE}/pipeline_config.yaml")
    assert [(offline.root / name).read_text() for name in names] == [(kit.root / name).read_text() for name in names]
    assert offline.env() == kit.env() | UNKNOWN_IMAGES  # which were exported there
    before = offline.state()
    again = await offline.prepare(before=NO_NETWORK)  # what is there needs no network either
    assert again.code == 0, again.said
    assert offline.state() == before
    assert not hub.requests
    assert not [call for call in offline.calls() if call.startswith("pull") or " build " in call]


async def test_the_official_runtime(kit: Kit, offline: Kit, hub: FakeHub, tmp_path: Path) -> None:
    hub.sdks[f"v3.6/{FOLDER}.tar.gz"] = sdk()
    kit.environ |= {"HPS_RUNTIME": "paddlex", "HPS_PADDLEX_IMAGE": "registry.example/paddlex:1"}
    bundle = tmp_path / "kit.bundle"
    await succeeds(kit, "--bundle", str(bundle))
    unpack_kit(bundle, offline)
    offline.environ["HPS_PADDLEX_IMAGE"] = "registry.example/paddlex:1"
    done = await offline.prepare("--from-bundle", str(bundle), before=NO_NETWORK)
    assert done.code == 0, done.said
    assert (offline.root / FOLDER / "server/pipeline_config.yaml").read_text() == (
        kit.root / FOLDER / "server/pipeline_config.yaml"
    ).read_text()
    assert offline.env()["HPS_RUNTIME"] == "paddlex"


@pytest.mark.parametrize("place", ["bundle/models/vlm/model.safetensors", "bundle/SHA256SUMS", "bundle/images.tar"])
async def test_a_damaged_bundle_is_refused(kit: Kit, offline: Kit, tmp_path: Path, place: str) -> None:
    bundle = tmp_path / "kit.bundle"
    await succeeds(kit, "--bundle", str(bundle))
    unpack_kit(bundle, offline)
    with tarfile.open(bundle) as archive:
        position = archive.getmember(place).offset_data + 10
    with bundle.open("r+b") as stream:
        stream.seek(position)
        byte = stream.read(1)
        stream.seek(position)
        stream.write(bytes([byte[0] ^ 1]))
    before = offline.state()
    done = await offline.prepare("--from-bundle", str(bundle), before=NO_NETWORK)
    assert done.code == 1 and "is damaged" in done.said, done.said
    assert offline.state() == before
    assert not [call for call in offline.calls() if call.startswith("image load")]


async def test_no_disk_for_a_bundle(kit: Kit, tmp_path: Path) -> None:
    kit.environ["FAKE_IMAGE_SIZE"] = str(10**15)
    done = await kit.prepare("--bundle", str(tmp_path / "kit.bundle"))
    assert done.code == 1 and f"free disk for the bundle at {tmp_path}: " in done.said, done.said
    assert not [name for name in os.listdir(tmp_path) if "bundle" in name]


async def test_half_a_bundle_is_refused(kit: Kit, offline: Kit, tmp_path: Path) -> None:
    bundle = tmp_path / "kit.bundle"
    await succeeds(kit, "--bundle", str(bundle))
    unpack_kit(bundle, offline)
    half = tmp_path / "half.bundle"
    half.write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])
    done = await offline.prepare("--from-bundle", str(half), before=NO_NETWORK)
    assert done.code == 1 and ("cannot be read" in done.said or "is damaged" in done.said), done.said


async def test_another_release_than_the_settings_name(kit: Kit, offline: Kit, tmp_path: Path) -> None:
    bundle = tmp_path / "kit.bundle"
    await succeeds(kit, "--bundle", str(bundle))
    unpack_kit(bundle, offline)
    offline.environ["HPS_PIPELINE_NAME"] = "PaddleOCR-VL-1.5"
    done = await offline.prepare("--from-bundle", str(bundle), before=NO_NETWORK)
    assert done.code == 1 and f"holds {RELEASE}" in done.said, done.said
