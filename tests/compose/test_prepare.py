"""prepare.sh where nothing but Docker is installed: it builds an image to run in, and the kit's images from there."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hps.prepare import bundle, images

ROOT = Path(__file__).parents[2]
PYTHON, CLI = "hps-test-python:3.11", "hps-test-docker-cli"


@pytest.fixture
def environ(docker_environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Of a host without Python: the image with Docker's command line is made from the engine's own."""
    program = shutil.which("docker", path=docker_environ["PATH"])
    assert program is not None
    usr = Path(program).parents[1]
    context = tmp_path / "cli"
    shutil.copytree(usr / "libexec/docker/cli-plugins", context / "cli-plugins")
    shutil.copy(program, context / "docker")
    (context / "Dockerfile").write_text(
        f"FROM {PYTHON}\nCOPY docker /usr/local/bin/\nCOPY cli-plugins /usr/local/libexec/docker/cli-plugins\n"
    )
    subprocess.run(["docker", "build", "--quiet", "--tag", CLI, context], env=docker_environ, check=True)
    certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    return docker_environ | {
        "HPS_RUNTIME": "cpu",
        "HPS_PYTHON_IMAGE": PYTHON,
        "HPS_DOCKER_IMAGE": CLI,
        # As one that somebody else built; the gateway's is built here.
        "HPS_PIPELINE_CPU_IMAGE": f"{CLI}:latest",
        "HPS_CA_FILE": certificates if Path(certificates).exists() else "/dev/null",
    }


@pytest.fixture
def kit(environ: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """The files that a user has."""
    folder = tmp_path / "kit"
    for name, file in bundle.kit_members(ROOT):
        if file.name not in ("images.lock", "models.lock"):
            target = folder / name.removeprefix(f"{bundle.KIT}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    yield folder
    lock = json.loads((folder / "images.lock").read_text()) if (folder / "images.lock").exists() else {"images": {}}
    names = [image["name"] for image in lock["images"].values()]
    subprocess.run(["docker", "image", "rm", *names, images.PREPARE_IMAGE, CLI], env=environ, capture_output=True)


@pytest.mark.timeout(900)
def test_only_docker_is_needed(kit: Path, environ: dict[str, str]) -> None:
    done = subprocess.run([kit / "prepare.sh"], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    lock = json.loads((kit / "images.lock").read_text())
    assert set(lock["images"]) == {"HPS_GATEWAY_IMAGE", "HPS_PIPELINE_CPU_IMAGE"}
    written = ("images.lock", ".env")
    assert {(kit / name).stat().st_uid for name in written} == {os.getuid()}
    configured = subprocess.run(
        ["docker", "compose", "config", "--images"], cwd=kit, env=environ, capture_output=True, text=True, check=True
    )
    assert set(configured.stdout.split()) == {image["name"] for image in lock["images"].values()}
    assert lock["images"]["HPS_GATEWAY_IMAGE"]["name"].endswith(lock["images"]["HPS_GATEWAY_IMAGE"]["id"][7:19])
    before = [((kit / name).stat().st_mtime_ns, (kit / name).read_bytes()) for name in written]
    # Again, and as it is without a network: the image that it runs in cannot be built, but is there.
    for more in ({}, {"HPS_DOCKER_IMAGE": "registry.invalid/docker:1"}):
        again = subprocess.run([kit / "prepare.sh"], env=environ | more, capture_output=True, text=True)
        assert again.returncode == 0, again.stderr[-4000:]
        assert [((kit / name).stat().st_mtime_ns, (kit / name).read_bytes()) for name in written] == before
