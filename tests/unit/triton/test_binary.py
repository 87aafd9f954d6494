"""What tritonserver and the model processes see of the environment."""

import os
import sys
from pathlib import Path

import pytest

from hps.settings import Settings, load
from hps.triton import binary
from hps.triton.binary import TritonBinary, server_environment

WHEEL = TritonBinary(Path("/t/bin/tritonserver"), Path("/t/backends"), (Path("/py/lib"), Path("/t/libs")))


def test_model_processes_see_exactly_the_settings() -> None:
    settings = Settings(coordinators=2, vlm_url="http://vlm:1", filter_health_access_log=False)
    env = server_environment(WHEEL, settings, {"HPS_STALE": "1", "HPS_COORDINATORS": "9", "LANG": "C"})
    assert load(env) == settings
    assert env["LANG"] == "C"


def test_model_processes_use_this_interpreters_packages() -> None:
    env = server_environment(WHEEL, Settings(), {"PATH": "/usr/bin", "PYTHONPATH": "/elsewhere", "PYTHONHOME": "/home"})
    assert env["PATH"].split(os.pathsep) == [str(Path(sys.prefix) / "bin"), "/usr/bin"]
    assert "/elsewhere" not in env.get("PYTHONPATH", "")
    assert "PYTHONHOME" not in env


def test_libraries_of_the_wheel_come_first() -> None:
    env = server_environment(WHEEL, Settings(), {"LD_LIBRARY_PATH": "/cuda"})
    assert env["LD_LIBRARY_PATH"] == "/py/lib:/t/libs:/cuda"


def test_a_server_in_path_is_used_with_a_stub_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton changes the stub's permissions: of root's file, or on a read-only file system, it could not."""
    server = tmp_path / "triton" / "bin" / "tritonserver"
    installed = tmp_path / "triton" / "backends" / "python"
    for file in (server, installed / binary.STUB, *(installed / name for name in binary.PYTHON_BACKEND)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(server.parent))
    assert binary.find(tmp_path / "state") == TritonBinary(server, tmp_path / "state" / "backends")
    ours = tmp_path / "state" / "backends" / "python"
    assert not (ours / binary.STUB).is_symlink()
    assert {name: (ours / name).resolve() for name in binary.PYTHON_BACKEND} == {
        name: installed / name for name in binary.PYTHON_BACKEND
    }


def test_the_allocator_keeps_memory_for_the_next_page_unless_it_is_set_otherwise() -> None:
    env = server_environment(WHEEL, Settings(), {"MALLOC_ARENA_MAX": "8"})
    assert env["MALLOC_ARENA_MAX"] == "8"
    assert int(env["MALLOC_MMAP_THRESHOLD_"]) < int(env["MALLOC_TRIM_THRESHOLD_"])
