"""compose.multi-gpu.yaml for the GPUs of HPS_DEVICE_IDS: `python -m hps.compose_gpus 0,1,2,3`. Pure but for `main`.

Each GPU has a VLM container of its own; all of them answer to one name, whose addresses the pipeline balances over. The
pipeline sees every GPU and runs its layout model on each. There is one gateway and one Triton.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

FILE = "compose.multi-gpu.yaml"
VLM, PIPELINE = "paddleocr-vlm-server", "paddleocr-vl-pipeline"
_HEAD = """\
# Written by `python -m hps.compose_gpus {ids}`, which ./prepare.sh runs: not to be changed by hand.
"""
_ID = re.compile(r"\d+|GPU-[0-9a-f-]+|MIG-[0-9a-zA-Z/-]+")


def parsed(text: str) -> list[str]:
    """The ids in `text`, by commas. Raises ValueError that says what is wrong."""
    ids = [part.strip() for part in text.split(",")]
    if wrong := [each for each in ids if not _ID.fullmatch(each)]:
        raise ValueError(f"HPS_DEVICE_IDS: not a GPU's number or UUID: {wrong[0]!r}")
    if len(set(ids)) != len(ids):
        raise ValueError("HPS_DEVICE_IDS names a GPU twice")
    return ids


def override(ids: Sequence[str]) -> dict[str, Any]:
    """The Compose file's content, over compose.yaml."""
    names = [VLM, *(f"{VLM}-{number}" for number in range(2, len(ids) + 1))]
    services: dict[str, Any] = {
        PIPELINE: {
            "deploy": _devices(ids),
            "depends_on": {name: {"condition": "service_healthy"} for name in names},
        }
    }
    for name, device in zip(names, ids, strict=True):
        services[name] = {"deploy": _devices([device])}
        if name != VLM:
            inside = {"inside": {"aliases": [VLM]}}
            services[name] = {
                "extends": {"file": "compose.yaml", "service": VLM},
                "networks": inside,
                **services[name],
            }
    return {"services": services}


def text(ids: Sequence[str]) -> str:
    """`override` as a file. Lists replace those of compose.yaml: Compose would add to them."""
    dumped = yaml.dump(override(ids), sort_keys=False, default_flow_style=False)
    return _HEAD.format(ids=",".join(ids)) + dumped.replace("devices:\n", "devices: !override\n")


def _devices(ids: Sequence[str]) -> dict[str, Any]:
    device = {"driver": "nvidia", "device_ids": list(ids), "capabilities": ["gpu"]}
    return {"resources": {"reservations": {"devices": [device]}}}


def main(arguments: Sequence[str]) -> int:
    try:
        Path(FILE).write_text(text(parsed(arguments[0])), encoding="utf-8")
    except (ValueError, IndexError) as error:
        print(f"hps: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
