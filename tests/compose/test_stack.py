"""The containers for real: built, started and stopped by Docker Compose with the CPU override (`make compose-test`).

A Docker Engine comes from tests/compose/engine.sh, the Python base image too, and triton-base.Dockerfile puts Triton
where NVIDIA's image has it, so that no registry is needed.
"""

import base64
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hps.api_keys import ApiKeys
from hps.ports import free_port

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FILES = ["-f", "compose.yaml", "-f", "compose.cpu.yaml", "-f", str(HERE / "triton-base.yaml")]
PYTHON_BASE, TRITON_BASE = "hps-test-python:3.11", "hps-test-triton:3.11"
PROJECT = f"hps-compose-test-{os.getpid()}"
GATEWAY, PIPELINE, VLM = "paddleocr-vl-api", "paddleocr-vl-pipeline", "paddleocr-vlm-server"


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float) -> float:
    """Seconds until `condition` held."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain for: {what}")
        time.sleep(0.2)
    return time.monotonic() - started


@dataclass(frozen=True)
class Stack:
    url: str
    environ: dict[str, str]

    def docker(self, *arguments: str, timeout_s: float = 120) -> str:
        done = subprocess.run(
            ["docker", *arguments], cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=timeout_s
        )
        assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        return done.stdout.strip()

    def compose(self, *arguments: str, timeout_s: float = 120) -> str:
        return self.docker("compose", "--project-name", PROJECT, *FILES, *arguments, timeout_s=timeout_s)

    def inspect(self, service: str) -> dict[str, Any]:
        container = self.compose("ps", "--all", "--quiet", service)
        found: dict[str, Any] = json.loads(self.docker("inspect", container))[0]
        return found

    def python(self, service: str, code: str) -> str:
        """Runs in the service's container."""
        return self.compose("exec", "-T", service, "python3", "-c", code)

    def readiness(self) -> tuple[int, str]:
        try:
            answer = httpx.get(f"{self.url}/health/ready", timeout=10, trust_env=False)
        except httpx.HTTPError:
            return 0, ""
        return answer.status_code, answer.text

    def ready(self) -> bool:
        return self.readiness()[0] == 200

    def parsed(self, document: Path) -> str:
        """Its Markdown."""
        body = {
            "file": base64.b64encode(document.read_bytes()).decode(),
            "fileType": 0 if document.suffix == ".pdf" else 1,
            "visualize": False,
        }
        answer = httpx.post(f"{self.url}/layout-parsing", json=body, timeout=120, trust_env=False).json()
        assert answer["errorCode"] == 0, answer
        return "\n".join(page["markdown"]["text"] for page in answer["result"]["layoutParsingResults"])


@pytest.fixture(scope="module")
def stack(docker_environ: dict[str, str]) -> Iterator[Stack]:
    port = free_port()
    certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    environ = docker_environ | {
        "HPS_PYTHON_IMAGE": PYTHON_BASE,
        "HPS_CA_FILE": certificates if Path(certificates).exists() else "/dev/null",
        "HPS_BIND": "127.0.0.1",
        "HPS_PORT": str(port),
    }
    stack = Stack(f"http://127.0.0.1:{port}", environ)
    base = ["--build-arg", f"BASE_IMAGE={PYTHON_BASE}", "--tag", TRITON_BASE]
    stack.docker("build", "--quiet", *base, "--file", str(HERE / "triton-base.Dockerfile"), ".", timeout_s=300)
    try:
        stack.compose("up", "--build", "--detach", "--wait", timeout_s=900)
        yield stack
    finally:
        stack.compose("down", "--volumes", "--remove-orphans", timeout_s=200)
        left = [
            stack.docker(kind, "ls", *more, "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
            for kind, *more in (["container", "--all"], ["network"], ["volume"])
        ]
        assert left == ["", "", ""]


@pytest.mark.timeout(1200)
def test_documents_are_parsed_over_the_published_port(stack: Stack) -> None:
    assert stack.ready()
    assert "Invoice" in stack.parsed(ROOT / "samples" / "invoice.png")
    assert len(stack.parsed(ROOT / "samples" / "paper-two-columns.pdf")) > 1000


TRITON_PROCESS = """
import psutil
print(*{p.exe() for p in psutil.process_iter() if p.name() == "tritonserver"})
"""


def test_the_triton_of_the_base_image_is_run(stack: Stack) -> None:
    assert stack.python(PIPELINE, TRITON_PROCESS) == "/opt/tritonserver/bin/tritonserver"


def test_images_hold_no_compiler(stack: Stack) -> None:
    tools = "import shutil; print(*filter(shutil.which, ['cc', 'gcc', 'g++', 'clang', 'make', 'git']))"
    assert [stack.python(service, tools) for service in (GATEWAY, PIPELINE)] == ["", ""]


def test_containers_have_no_rights_to_spare(stack: Stack) -> None:
    for service in (GATEWAY, PIPELINE, VLM):
        host = stack.inspect(service)["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and host["Memory"] > 0
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert host["RestartPolicy"]["Name"] == "unless-stopped"
        assert stack.python(service, "import os; print(os.getuid(), os.access('/', os.W_OK))") == "10001 False"
    published = [stack.inspect(service)["HostConfig"]["PortBindings"] or {} for service in (PIPELINE, VLM)]
    assert published == [{}, {}]


def test_readiness_names_a_vlm_server_that_is_stopped_and_comes_back_by_itself(stack: Stack) -> None:
    stack.compose("stop", VLM)
    wait_for(lambda: stack.readiness()[0] == 503, "readiness to tell", 15)
    assert "VLM server not ready" in stack.readiness()[1]
    stack.compose("start", VLM)
    wait_for(stack.ready, "readiness", 60)


def test_a_key_is_added_where_only_docker_is_installed(stack: Stack, tmp_path: Path) -> None:
    """By the command of SECURITY.md, word by word."""
    documented = re.search(r"docker compose (run (?:.*\\\n)*.*)", (ROOT / "SECURITY.md").read_text())
    assert documented is not None
    command = (
        documented[1].replace("\\\n", "").replace("$(id -u)", str(os.getuid())).replace("$PWD/config", str(tmp_path))
    )
    said = stack.compose(*shlex.split(command.replace("NAME", "scanner")))
    assert ApiKeys(tmp_path / "api-keys").name_of(said.split()[-1]) == "scanner"


KILL_ONE = """
import psutil
models = [p for p in psutil.process_iter() if "triton_python_backend_stub" in " ".join(p.cmdline()[:1])]
[p.kill() for p in models if "/layout-parsing/" in " ".join(p.cmdline())]
print(len(models))
"""


def test_a_killed_model_process_comes_back_inside_its_container(stack: Stack) -> None:
    wait_for(stack.ready, "readiness", 60)
    assert int(stack.python(PIPELINE, KILL_ONE)) >= 3
    wait_for(lambda: not stack.ready(), "readiness to tell", 15)
    wait_for(stack.ready, "readiness", 60)
    assert "Invoice" in stack.parsed(ROOT / "samples" / "invoice.png")
    assert stack.inspect(PIPELINE)["RestartCount"] == 0


METRICS = "import httpx; print(httpx.get('http://127.0.0.1:9092/metrics', trust_env=False).text)"


def test_vlm_containers_that_share_a_name_share_the_work(stack: Stack) -> None:
    """As those of several GPUs do, which have one alias."""

    def servers_up() -> int:
        lines = stack.python(PIPELINE, METRICS).splitlines()
        return sum(line.startswith("hps_vlm_replica_up{") and line.endswith(" 1.0") for line in lines)

    wait_for(stack.ready, "readiness", 60)
    try:
        stack.compose("up", "--detach", "--wait", "--no-recreate", "--scale", f"{VLM}=2", VLM)
        wait_for(lambda: servers_up() == 2, "both servers", 60)
        first, _ = stack.compose("ps", "--quiet", VLM).split()
        stack.docker("stop", first)
        assert "Invoice" in stack.parsed(ROOT / "samples" / "invoice.png")
        assert stack.ready()
        wait_for(lambda: servers_up() == 1, "one server", 60)
        stack.docker("start", first)

        def both_work() -> bool:  # one that is back is up when it has read a block
            stack.parsed(ROOT / "samples" / "invoice.png")
            return servers_up() == 2

        wait_for(both_work, "both servers", 60)
    finally:
        stack.compose("up", "--detach", "--wait", "--no-recreate", "--scale", f"{VLM}=1", VLM)


STOP_GATEWAY = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    command = (folder / "cmdline").read_bytes().split(b"\\0")
    if int(folder.name) not in (1, os.getpid()) and command[1:3] == [b"-m", b"gateway"]:
        os.kill(int(folder.name), signal.SIGSTOP)
        print("stopped")
"""


@pytest.mark.timeout(400)
def test_a_container_whose_health_stays_bad_is_restarted(stack: Stack) -> None:
    """Docker restarts what ends, not what is unhealthy: the health check sees to the end."""
    wait_for(stack.ready, "readiness", 60)
    assert "stopped" in stack.python(GATEWAY, STOP_GATEWAY)
    wait_for(lambda: stack.inspect(GATEWAY)["RestartCount"] == 1, "a restart", 150)
    wait_for(stack.ready, "readiness", 60)
