"""A copy of the kit on a host of our own making: fake docker and nvidia-smi in the PATH, hubs on a local server."""

import asyncio
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FILES = (
    *(
        "compose.yaml",
        "compose.cpu.yaml",
        "compose.paddlex.yaml",
        ".env.example",
        ".dockerignore",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ),
    *("NOTICE", "CHANGELOG.md", "gateway.Dockerfile", "pipeline.Dockerfile", "prepare.Dockerfile", "prepare.sh"),
)
_FOLDERS = ("src/hps/vlm_server", "src/hps/releases", "gateway", "model_repo", "vlm", "requirements")
H200 = "0, GPU-0000, NVIDIA H200, 143771, 9.0, Default, 580.95.05"


@dataclass
class Done:
    code: int
    said: str


@dataclass
class Kit:
    """root: the kit's folder. hub: URL of the fake hubs, where there is a network."""

    root: Path
    hub: str = "http://127.0.0.1:9"
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host = self.root.parent / f"{self.root.name}-host"
        (self.host / "bin").mkdir(parents=True, exist_ok=True)
        (self.host / "docker").mkdir(exist_ok=True)
        self._program("docker", f'exec {sys.executable} -I -S {ROOT}/tests/fakes/docker.py "$@"')
        self.gpus(H200)

    def fill(self) -> None:
        """The kit's files, as a user gets them."""
        for name in _FILES:
            shutil.copy(ROOT / name, self.root / name)
        for name in _FOLDERS:
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))

    def use_venv(self) -> None:
        """prepare.sh runs in this environment."""
        (self.root / ".venv/bin").mkdir(parents=True)
        program = self.root / ".venv/bin/hps"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hps "$@"\n')
        program.chmod(0o755)

    def gpus(self, *lines: str) -> None:
        text = "\n".join(lines)
        self._program("nvidia-smi", f"cat <<'E'\n{text}\nE" if lines else "exit 9")

    def _program(self, name: str, script: str) -> None:
        program = self.host / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def variables(self) -> dict[str, str]:
        return {
            "PATH": f"{self.host}/bin:/usr/bin:/bin",
            "HOME": str(self.host),
            "FAKE_DOCKER": str(self.host / "docker"),
            "FAKE_REGISTRY": f"{self.hub}/registry",
            "HPS_HUGGINGFACE_URL": self.hub,
            "HPS_MODELSCOPE_URL": self.hub,
            "HPS_SDK_URL": f"{self.hub}/sdks",
            "NO_PROXY": "*",
            **self.environ,
        }

    async def start(self, *arguments: str, before: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *before,
            str(self.root / "prepare.sh"),
            *arguments,
            cwd=self.root,
            env=self.variables(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def prepare(self, *arguments: str, before: tuple[str, ...] = ()) -> Done:
        """./prepare.sh with `arguments`; `before`: a command that runs it."""
        process = await self.start(*arguments, before=before)
        said, _ = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, said.decode())

    def env(self) -> dict[str, str]:
        """The lines of .env that are set."""
        lines = (self.root / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def calls(self) -> list[str]:
        """What docker was asked for since the last time."""
        file = self.host / "docker/calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def state(self) -> dict[str, tuple[int, bytes]]:
        """Every file of the kit: when it was written, and what it holds."""
        return {
            str(file.relative_to(self.root)): (file.stat().st_mtime_ns, file.read_bytes())
            for file in sorted(self.root.rglob("*"))
            if file.is_file()
        }
