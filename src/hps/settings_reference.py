"""`python -m hps.settings_reference [--check]`: writes what the settings' modules say to where users read it.

.env.example as a whole; compose.yaml, README.md and docs/settings.md between their marks. (README.zh-CN.md is
written by hand; a test compares it.)
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from hps.compose_settings import CONTAINER_DEFAULTS, FIXED_IN_CONTAINERS, ComposeSettings
from hps.settings import Settings, variable

# What most users set, in the README's order.
COMMON: Final = (
    "pipeline_name",
    "device_id",
    "device_ids",
    "bind",
    "port",
    "triton_bind",
    "api_keys_file",
    "pipeline_config",
    "vlm_url",
    "vlm_replicas",
    "vlm_mps",
    "layout_backend",
    "max_concurrent_inference_requests",
    "max_concurrent_non_inference_requests",
    "max_queued_requests",
    "inference_timeout",
    "health_check_timeout",
    "coordinators",
    "decode_workers",
    "vlm_max_concurrency",
    "url_input",
    "log_level",
)
# Set in .env from the start, the rest is commented out: what ./prepare.sh and COMPOSE_FILE refer to.
GIVEN: Final = ("pipeline_name", "device_id", "device_ids", "triton_bind", "runtime")

ENV_HEAD: Final = """\
# Settings of PaddleOCR-VL HPS: copy to .env (./prepare.sh does it) and change lines.
# Exported variables win. Written by `make settings` from src/hps/settings.py and src/hps/compose_settings.py.
"""
ENV_COMPOSE_FILE: Final = """\
# The Compose files in use follow from the settings above; keep this line below them.
COMPOSE_FILE=compose.yaml${HPS_TRITON_BIND:+:compose.triton.yaml}${HPS_DEVICE_IDS:+:compose.multi-gpu.yaml}${HPS_RUNTIME:+:compose.${HPS_RUNTIME}.yaml}
"""


def fields() -> dict[str, FieldInfo]:
    """All settings by field name; what both classes have is as Settings has it."""
    return {
        **Settings.model_fields,
        **{n: f for n, f in ComposeSettings.model_fields.items() if n not in Settings.model_fields},
    }


def default(name: str) -> str:
    """As it is written in a file of variables; empty when there is none."""
    if name in CONTAINER_DEFAULTS:
        return CONTAINER_DEFAULTS[name]
    value: Any = fields()[name].default
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def groups() -> Iterator[tuple[str, list[str]]]:
    """The names under each heading of the two classes' sources."""
    seen: set[str] = set()
    for model in (ComposeSettings, Settings):
        parts = re.split(r"^    # --- (.*) ---$", inspect.getsource(model), flags=re.MULTILINE)
        for heading, text in zip(parts[1::2], parts[2::2], strict=True):
            names = [n for n in re.findall(r"^    (\w+): ", text, re.MULTILINE) if n in fields() and n not in seen]
            if model is ComposeSettings:
                names = [name for name in names if name not in Settings.model_fields]
            seen |= set(names)
            yield heading, names


def env_example() -> str:
    lines = [ENV_HEAD, *(f"# {_meaning(name)}\n{variable(name)}={default(name)}" for name in GIVEN), ENV_COMPOSE_FILE]
    for heading, names in groups():
        names = [name for name in names if name not in GIVEN and _for_users(name)]
        if names:
            lines.append(f"# --- {heading} ---\n")
            lines += [f"# {_meaning(name)}\n#{variable(name)}={default(name)}" for name in names]
            lines.append("")
    return "\n".join(lines)


def compose_block() -> str:
    """Variables without a value are passed on where they are set, and only there."""
    return "".join(f"  {variable(name)}:\n" for name in Settings.model_fields if name not in FIXED_IN_CONTAINERS)


def table(names: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    rows = [f"| `{variable(name)}` | {_shown(default(name))} | {_meaning(name)} |" for name in names]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"


def full_reference() -> str:
    parts = [f"## {heading[0].upper()}{heading[1:]}\n\n{table(names)}" for heading, names in groups() if names]
    return "\n" + "\n".join(parts)


def _for_users(name: str) -> bool:
    return name not in FIXED_IN_CONTAINERS or name == "port"


def _meaning(name: str) -> str:
    return str(fields()[name].description)


def _shown(value: str) -> str:
    return f"`{value}`" if value else "–"


def between(text: str, start: str, end: str, content: str) -> str:
    """`text` with everything between the lines that contain `start` and `end` replaced. ValueError without them."""
    pattern = re.compile(
        rf"(^[^\n]*{re.escape(start)}[^\n]*\n).*?(^[^\n]*{re.escape(end)}[^\n]*$)", re.DOTALL | re.MULTILINE
    )
    if not pattern.search(text):
        raise ValueError(f"no lines with {start!r} and {end!r}")
    return pattern.sub(lambda match: match[1] + content + match[2], text, count=1)


def written(root: Path) -> Mapping[Path, str]:
    """What each file should hold, given what it holds now."""
    contents = {root / ".env.example": env_example()}
    for name, content in (
        ("compose.yaml", compose_block()),
        ("README.md", "\n" + table(COMMON) + "\n"),
        ("docs/settings.md", full_reference()),
    ):
        file = root / name
        contents[file] = between(file.read_text(encoding="utf-8"), "begin of settings", "end of settings", content)
    return contents


def main(arguments: list[str]) -> int:
    """0 when all files are as they should be, or have been made so; 1 for --check when one is not."""
    stale = {
        file: text
        for file, text in written(Path.cwd()).items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    }
    for file, text in stale.items():
        print(f"{'stale' if '--check' in arguments else 'written'}: {file.relative_to(Path.cwd())}")
        if "--check" not in arguments:
            file.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
