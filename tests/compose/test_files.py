"""The NVIDIA Compose files: they merge for each release and number of GPUs, and give each GPU what it needs."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hps import compose_gpus
from hps.compose_settings import FIXED_IN_CONTAINERS, ComposeSettings
from hps.settings import Settings, variable

ROOT = Path(__file__).parents[2]
SCHEMA = [ROOT / ".venv-checks/bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec"]  # `make` installs it
GATEWAY, PIPELINE, VLM = "paddleocr-vl-api", compose_gpus.PIPELINE, compose_gpus.VLM
# What the VLM container reads (src/hps/vlm_server).
OF_VLM = {
    *("pipeline_config", "vlm_model", "vlm_model_name", "vlm_api_key", "vlm_replicas", "vlm_mps", "vlm_kv_cache_gib"),
    *("vlm_api_processes", "vlm_hang_timeout", "vlm_config", "vlm_extra_args"),
}


def merged(environ: dict[str, str], *files: Path | str, **variables: str) -> dict[str, Any]:
    """What Compose makes of compose.yaml and these files; it keeps to the schema of Compose files."""
    arguments = [part for file in ("compose.yaml", *files) for part in ("-f", str(file))]
    done = subprocess.run(
        ["docker", "compose", *arguments, "--project-directory", str(ROOT), "config", "--format", "json"],
        cwd=ROOT,
        env=environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    checked = subprocess.run([*SCHEMA, "-"], input=done.stdout, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
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


@pytest.mark.parametrize("release", ["PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6"])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_several_gpus(docker_environ: dict[str, str], count: int, release: str) -> None:
    ids = [str(number) for number in range(count)]
    file = ROOT / f".compose.test-{count}-gpus.yaml"  # `extends` looks beside the file
    try:
        file.write_text(compose_gpus.text(ids))
        services = merged(docker_environ, file, HPS_PIPELINE_NAME=release)["services"]
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


def test_every_setting_reaches_its_containers_when_it_is_set(docker_environ: dict[str, str]) -> None:
    """Also where compose.yaml has a default of its own for it."""
    for services, names in (
        ((GATEWAY, PIPELINE), [n for n in Settings.model_fields if n not in FIXED_IN_CONTAINERS]),
        ((VLM,), [n for n in Settings.model_fields.keys() | ComposeSettings.model_fields.keys() if n in OF_VLM]),
    ):
        given = {variable(name): f"value-{number}" for number, name in enumerate(names)}
        found = merged(docker_environ, **given)["services"]
        for service in services:
            environment = found[service]["environment"]
            assert {name: environment.get(name) for name in given} == given


@pytest.mark.parametrize("added", ["compose.cache.yaml", "compose.tls.yaml", "compose.cpu.yaml"])
def test_files_that_are_added(docker_environ: dict[str, str], added: str) -> None:
    assert {GATEWAY, PIPELINE, VLM} <= merged(docker_environ, added)["services"].keys()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("HPS_RUNTIME=cpu", "paddleocr-vl-hps-pipeline-cpu"),
        ("HPS_RUNTIME=", "paddleocr-vl-hps-pipeline:"),
        ("HPS_TRITON_BIND=127.0.0.1", 'published: "8001"'),
    ],
)
@pytest.mark.parametrize("exported", [False, True])
def test_the_files_in_use_follow_from_env(
    docker_environ: dict[str, str], tmp_path: Path, line: str, expected: str, exported: bool
) -> None:
    """As a user starts it: `docker compose up` in a folder with .env, and variables in front of it win."""
    for file in [*ROOT.glob("compose*.yaml"), ROOT / ".env.example"]:
        shutil.copy(file, tmp_path)
    name, _, value = line.partition("=")
    text = (tmp_path / ".env.example").read_text()
    text = re.sub(rf"^{name}=.*$", f"{name}=" if exported else line, text, flags=re.MULTILINE)
    (tmp_path / ".env").write_text(text)
    environ = docker_environ | ({name: value} if exported else {})
    done = subprocess.run(
        ["docker", "compose", "config"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert expected in done.stdout


def test_a_quicker_start_has_a_start_period_beside_it(docker_environ: dict[str, str]) -> None:
    """Newer Compose refuses the one without the other; that of the image does not count."""
    for service in merged(docker_environ, "compose.cpu.yaml")["services"].values():
        health = service.get("healthcheck", {})
        assert "start_interval" not in health or health.get("start_period"), health
