"""Where tritonserver is, and what it needs around it: backend directory, environment."""

import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import hps
from hps.settings import PREFIX, Settings, environment

IMAGE_PREFIX = Path("/opt/tritonserver")
PYTHON_BACKEND = ("libtriton_python.so", "triton_python_backend_utils.py")
STUB = "triton_python_backend_stub"


class TritonNotFound(Exception):
    """No tritonserver on this machine; the message says what to install."""


@dataclass(frozen=True, slots=True)
class TritonBinary:
    """An installed server. libraries: directories that its dynamic linker needs."""

    server: Path
    backends: Path
    libraries: tuple[Path, ...] = field(default=())


def find(state: Path) -> TritonBinary:
    """The server in PATH, else that of NVIDIA's image, else that of the wheel nvidia-pytriton.

    `state` receives the directory of the one backend that is used. Raises TritonNotFound.
    """
    on_path = shutil.which("tritonserver")
    for server in (Path(on_path) if on_path else None, IMAGE_PREFIX / "bin" / "tritonserver"):
        if server is not None and server.exists():
            python = server.resolve().parents[1] / "backends" / "python"
            return TritonBinary(server, _own_backends(python, python / STUB, state))
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise TritonNotFound(
            "tritonserver was found neither in PATH nor in /opt/tritonserver, and the wheel nvidia-pytriton, "
            "which brings one, is not installed"
        )
    return _of_wheel(Path(spec.submodule_search_locations[0]), state)


def _of_wheel(package: Path, state: Path) -> TritonBinary:
    root = package / "tritonserver"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = root / "python_backend_stubs" / version / STUB
    if not stub.exists():
        raise TritonNotFound(f"the wheel nvidia-pytriton has no Python {version} stub")
    return TritonBinary(
        root / "bin" / "tritonserver",
        _own_backends(root / "backends" / "python", stub, state),
        (
            Path(sysconfig.get_config_var("LIBDIR")),
            Path(sys.base_prefix) / "lib",
            package.parent / "nvidia_pytriton.libs",
        ),
    )


def _own_backends(python: Path, stub: Path, state: Path) -> Path:
    """A backend directory below `state` with the installed Python backend and a copy of `stub`.

    The backend starts the stub that lies beside it, and changes its permissions first, which only its owner may and no
    read-only file system lets him; and the wheel keeps a stub for each Python version elsewhere.
    """
    backend = state / "backends" / "python"
    shutil.rmtree(backend, ignore_errors=True)
    backend.mkdir(parents=True)
    for name in PYTHON_BACKEND:
        (backend / name).symlink_to(python / name)
    shutil.copy(stub, backend / STUB)
    return backend.parent


# By default glibc gives the megabytes of every page back to the kernel and asks for them anew, with a page fault for
# each 4 KiB: a tenth of what a page costs. Here what is free stays for the next page, 64 MiB in each of two arenas.
_ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(16 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}


def server_environment(binary: TritonBinary, settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of tritonserver and, through it, of the model processes: `base` made to fit.

    Model processes see exactly these settings, take their packages from this interpreter's environment (they start
    the first `python3` in PATH), and none from a PYTHONPATH that happened to be set. They inherit how glibc's allocator
    is set, decoders too, unless `base` says otherwise.
    """
    env = _ALLOCATOR | {name: value for name, value in base.items() if not name.startswith(PREFIX)}
    env.update(environment(settings))
    env["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), base.get("PATH", os.defpath)])
    libraries = [str(path) for path in binary.libraries]
    if inherited := base.get("LD_LIBRARY_PATH"):
        libraries.append(inherited)
    if libraries:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    env.pop("PYTHONPATH", None)
    env.pop("PYTHONHOME", None)
    source = Path(hps.__file__).resolve().parents[1]
    if source != Path(sysconfig.get_path("purelib")).resolve():  # not installed: run from a checkout
        env["PYTHONPATH"] = str(source)
    return env
