"""The NVIDIA Compose files: they merge for each release and number of GPUs, and give each GPU what it needs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hps import compose_gpus

ROOT = Path(__file__).parents[2]
PIPELINE, VLM = compose_gpus.PIPELINE, compose_gpus.VLM


def merged(environ: dict[str, str], *files: Path | str, **variables: str) -> dict[str, Any]:
    """What Compose makes of compose.yaml and these files."""
    arguments = [part for file in ("compose.yaml", *files) for part in ("-f", str(file))]
    done = subprocess.run(
        ["docker", "compose", *arguments, "--project-directory", str(ROOT), "config", "--format", "json"],
        cwd=ROOT,
        env=environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def devices(service: dict[str, Any]) -> list[str]:
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    return list(device["device_ids"])


@pytest.mark.parametrize("release", ["PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6"])
def test_one_gpu_with_each_release(docker_environ: dict[str, str], release: str) -> None:
    services = merged(docker_environ, HPS_PIPELINE_NAME=release, HPS_DEVICE_ID="3")["services"]
    assert devices(services[PIPELINE]) == devices(services[VLM]) == ["3"]
    assert services[VLM]["environment"]["HPS_VLM_MODEL"] == f"/models/{release}/vlm"
    assert services[PIPELINE]["environment"]["HPS_PIPELINE_NAME"] == release


@pytest.mark.parametrize("count", [1, 2, 8])
def test_several_gpus(docker_environ: dict[str, str], tmp_path: Path, count: int) -> None:
    ids = [str(number) for number in range(count)]
    file = ROOT / f".compose.test-{count}-gpus.yaml"  # `extends` looks beside the file
    try:
        file.write_text(compose_gpus.text(ids))
        services = merged(docker_environ, file)["services"]
    finally:
        file.unlink()
    servers = {name: service for name, service in services.items() if name.startswith(VLM)}
    assert [devices(service) for service in servers.values()] == [[each] for each in ids]
    assert devices(services[PIPELINE]) == ids
    assert set(services[PIPELINE]["depends_on"]) == set(servers)
    assert all(VLM in (service["networks"]["inside"] or {}).get("aliases", [VLM]) for service in servers.values())


@pytest.mark.parametrize("text", ["", "0,", "one", "0,0", "0;1"])
def test_ids_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="HPS_DEVICE_IDS"):
        compose_gpus.parsed(text)


def test_the_official_pipeline_behind_our_gateway(docker_environ: dict[str, str]) -> None:
    variables = {"HPS_SDK_DIR": "paddlex_hps_PaddleOCR-VL-1.6_sdk", "HPS_PADDLEX_VERSION": "3.7"}
    services = merged(docker_environ, "compose.paddlex.yaml", **variables)["services"]
    assert services[PIPELINE]["image"].endswith("/paddlex/hps:paddlex3.7-gpu")
    assert "build" not in services[PIPELINE]
    assert services[PIPELINE]["environment"] == {"PADDLEX_HPS_DEVICE_TYPE": "gpu"}
    assert services[PIPELINE]["volumes"][0]["source"] == str(ROOT / variables["HPS_SDK_DIR"] / "server")
    assert services[VLM]["environment"]["HPS_VLM_REPLICAS"] == "1"


def test_triton_is_published_only_where_it_is_asked_for(docker_environ: dict[str, str]) -> None:
    assert "ports" not in merged(docker_environ)["services"][PIPELINE]
    ports = merged(docker_environ, "compose.triton.yaml", HPS_TRITON_BIND="127.0.0.1")["services"][PIPELINE]["ports"]
    assert [(port["host_ip"], port["published"]) for port in ports] == [("127.0.0.1", "8000"), ("127.0.0.1", "8001")]
