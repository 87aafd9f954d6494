"""`hps prepare`: first everything that changes nothing, then, when all of it went well, the changes."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from hps import compose_gpus
from hps.prepare import (
    bundle,
    catalogue,
    choices,
    docker,
    env_file,
    host,
    hubs,
    images,
    locks,
    paddlex_sdk,
    pipeline_file,
    sizing,
    weights,
)
from hps.prepare.catalogue import Part
from hps.prepare.choices import Choices
from hps.prepare.host import Host
from hps.prepare.hubs import NotThere
from hps.prepare.locks import LockedPart
from hps.prepare.problems import PrepareError
from hps.prepare.weights import Wanted

ENV: Final = ".env"
EXAMPLE: Final = ".env.example"
CONFIG: Final = "pipeline_config.yaml"
_SPARE_GIB: Final = 1.0
_LEAST_MEMORY_GIB: Final = 4.0
_PAUSE_S: Final = 2.0  # before a broken download goes on
NEXT: Final = "docker compose up --detach --wait"


def run(arguments: argparse.Namespace) -> int:
    """1 when something stands in the way, with all that was found on stderr."""
    try:
        root = Path.cwd()
        if not (root / "compose.yaml").is_file():
            raise PrepareError(f"{root} is not the kit's folder: compose.yaml is not in it")
        if arguments.bundle and arguments.from_bundle:
            raise PrepareError("--bundle and --from-bundle exclude each other")
        if arguments.from_bundle:
            _install_bundle(root, arguments.from_bundle)
        else:
            chosen = _prepare(root)
            if arguments.bundle:
                _say(f"packing {arguments.bundle}")
                bundle.pack(chosen, arguments.bundle, _say)
        _say(f"Ready. Next: {NEXT}")
    except (PrepareError, OSError) as error:  # a full disk, a folder that may not be written to
        print(f"prepare: {error}", file=sys.stderr)
        return 1
    return 0


def _prepare(root: Path) -> Choices:
    text = _env_text(root)
    chosen = choices.read(root, text, os.environ)
    models, image_lock = locks.read_models(root), locks.read_images(root)
    locked = models.get(chosen.release, {})
    with hubs.client() as client:
        _say(f"preparing {chosen.release}" + (f" for HPS_RUNTIME={chosen.runtime}" if chosen.runtime else ""))
        found = _measured(chosen)
        wanted = _wanted(chosen, locked, client)
        _check(chosen, found, wanted, images.missing_gib(root, chosen.values, image_lock))
        staged = {**{name: locked[name] for name in locked if name not in {w.part.name for w in wanted}}}
        for entry in wanted:
            name = entry.part.name
            files = weights.stage(entry, chosen.models, chosen.release, locked.get(name), _say, _PAUSE_S)
            staged[name] = LockedPart(entry.part.repository, files)
        config = _config(chosen, staged)
        if chosen.runtime == "paddlex":
            staged[_sdk_part(chosen)] = _install_sdk(chosen, client, locked, config)
    image_lock = images.ensure(root, chosen.values, image_lock, _say)
    locks.write_images(root, image_lock)
    _install(chosen, staged, config)
    values = _chosen_values(chosen, found) | images.variables(chosen.values, image_lock)
    _write_env(root, text, values)
    return chosen


def _install_bundle(root: Path, file: Path) -> None:
    manifest = bundle.verify(file, _say)
    text = _env_text(root)
    if not (root / ENV).exists() and "HPS_PIPELINE_NAME" not in os.environ:
        packed = {"HPS_PIPELINE_NAME": manifest.release, "HPS_RUNTIME": manifest.runtime}
        text = env_file.edited(text, packed | manifest.settings)
    chosen = choices.read(root, text, os.environ)
    if (chosen.release, chosen.runtime) != (manifest.release, manifest.runtime):
        raise PrepareError(
            f"{file} holds {manifest.release} (HPS_RUNTIME={manifest.runtime}), but the settings say {chosen.release} "
            f"(HPS_RUNTIME={chosen.runtime})"
        )
    found = _measured(chosen)
    _check(chosen, found, [], 0.0, models_gib=manifest.models_bytes / 2**30)
    image_lock, staged = bundle.unpack(chosen, file, _say)
    locks.write_images(root, image_lock)
    config = _config(chosen, staged)
    _install(chosen, staged, config)
    if chosen.runtime == "paddlex":
        paddlex_sdk.point(root / chosen.sdk_folder, chosen.settings.vlm_url, _serving(chosen, config))
    _write_env(root, text, _chosen_values(chosen, found) | images.variables(chosen.values, image_lock))


def _env_text(root: Path) -> str:
    """What is in .env, with the line in it that chooses Compose files: one that was written by hand may lack it."""
    for name in (ENV, EXAMPLE):
        if (root / name).exists():
            return env_file.choosing_compose_files((root / name).read_bytes().decode())
    raise PrepareError(f"neither {ENV} nor {EXAMPLE} is in {root}")


# --- what changes nothing ---


def _measured(chosen: Choices) -> Host:
    probe = images.PREPARE_IMAGE if docker.image_id(images.PREPARE_IMAGE) else None
    return host.measure(chosen.models, bool(chosen.devices), probe)


def _check(chosen: Choices, found: Host, wanted: list[Wanted], docker_gib: float, models_gib: float = 0.0) -> None:
    """Raises PrepareError with everything that stands in the way."""
    models_gib += sum(weights.missing_bytes(entry, chosen.models, chosen.release) for entry in wanted) / 2**30
    gpu_images = ("HPS_VLM_IMAGE", "HPS_TRITON_IMAGE", "HPS_TORCH") if chosen.runtime == "" else ("HPS_VLM_IMAGE",)
    replicas = chosen.values.get("HPS_VLM_REPLICAS", "auto")
    needs = host.Needs(
        models_gib=models_gib + _SPARE_GIB,
        docker_gib=docker_gib + _SPARE_GIB if docker_gib else None,
        memory_gib=sizing.needed_memory_gib(int(replicas) if replicas.isdecimal() else 1, len(chosen.devices))
        if chosen.devices
        else _LEAST_MEMORY_GIB,
        devices=chosen.devices,
        images=tuple((name, chosen.values.get(name) or images.default(name)) for name in gpu_images),
        mps=chosen.compose.vlm_mps,
    )
    if problems := host.problems(found, needs):
        raise PrepareError("this host will not do:\n" + "\n".join(f"  - {problem}" for problem in problems))


def _parts(chosen: Choices) -> tuple[Part, ...]:
    """What is to be fetched for the runtime: the official pipeline brings its own layout model."""
    if chosen.runtime == "cpu":
        return ()
    parts = catalogue.PARTS[chosen.release]
    return tuple(part for part in parts if part.name == "vlm") if chosen.runtime == "paddlex" else parts


def _wanted(chosen: Choices, locked: Mapping[str, LockedPart], client: httpx.Client) -> list[Wanted]:
    """Where each part comes from; those that are here and right need no source. Raises PrepareError."""
    wanted = []
    for part in _parts(chosen):
        if part.name in locked and weights.is_installed(chosen.models, chosen.release, part, locked[part.name]):
            continue
        try:
            wanted.append(_found(chosen, part, locked.get(part.name), client))
        except PrepareError as error:
            if not part.optional:
                raise
            _say(f"without {part.name}: {error}")
    return wanted


def _found(chosen: Choices, part: Part, locked: LockedPart | None, client: httpx.Client) -> Wanted:
    if chosen.folder is not None:
        if not chosen.folder.is_dir():
            raise PrepareError(
                f"HPS_MODEL_SOURCE is {chosen.compose.model_source}: neither huggingface nor modelscope nor a folder"
            )
        return weights.from_folder(chosen.folder, part, locked)
    problems = []
    for name in chosen.hubs:
        try:
            hub = hubs.connected(name, client, chosen.address(name))
            return weights.from_hub(hub, part, _revision(chosen, part), locked)
        except PrepareError as error:
            problems.append(error)
    kind = NotThere if all(isinstance(error, NotThere) for error in problems) else PrepareError
    raise kind("\n".join(str(error) for error in problems))


def _revision(chosen: Choices, part: Part) -> str | None:
    return {"vlm": chosen.compose.vlm_revision, "layout": chosen.compose.layout_revision}.get(part.name)


def _config(chosen: Choices, staged: Mapping[str, LockedPart]) -> str | None:
    """pipeline_config.yaml as it is to be: the one that is here, or the release's, for this VLM address and models."""
    if chosen.runtime == "cpu":
        return None
    file = chosen.models / chosen.release / CONFIG
    text = file.read_text(encoding="utf-8") if file.exists() else pipeline_file.shipped(chosen.release)
    parts = [part.name for part in _parts(chosen) if part.name in staged]
    return pipeline_file.prepared(text, chosen.release, chosen.settings.vlm_url, parts, f"/models/{chosen.release}")


# --- what changes something ---


def _install(chosen: Choices, staged: Mapping[str, LockedPart], config: str | None) -> None:
    ours = {part.name: staged[part.name] for part in _parts(chosen) if part.name in staged}
    models = locks.read_models(chosen.root)
    if models.get(chosen.release, {}) != staged:
        locks.write_models(chosen.root, {**models, chosen.release: dict(staged)})
    weights.install(chosen.models, chosen.release, ours)
    if chosen.compose.device_ids:
        env_file.write(chosen.root / compose_gpus.FILE, compose_gpus.text(chosen.devices))
    if config is not None:
        # Last: the VLM container does not start without it.
        env_file.write(chosen.models / chosen.release / CONFIG, config)


def _sdk_part(chosen: Choices) -> str:
    return f"paddlex-{chosen.compose.paddlex_version}"


def _install_sdk(
    chosen: Choices, client: httpx.Client, locked: Mapping[str, LockedPart], config: str | None
) -> LockedPart:
    return paddlex_sdk.install(
        client,
        chosen.sdk_url,
        chosen.root / chosen.sdk_folder,
        chosen.settings.vlm_url,
        _serving(chosen, config),
        locked.get(_sdk_part(chosen)),
        _say,
        _PAUSE_S,
    )


def _serving(chosen: Choices, config: str | None) -> str:
    """The name under which the VLM is served."""
    return chosen.settings.vlm_model_name or pipeline_file.vlm_name(config or "")


def _chosen_values(chosen: Choices, found: Host) -> dict[str, str]:
    """What .env is to say: what was prepared, and limits for these GPUs where nobody has set any."""
    values = {
        "HPS_PIPELINE_NAME": chosen.release,
        "HPS_SDK_DIR": chosen.sdk_folder,
        "HPS_VLM_URL": chosen.settings.vlm_url,
    }
    gpus = host.chosen(found, chosen.devices)
    if not gpus or chosen.runtime == "paddlex":  # the official pipeline has limits of its own
        return values
    limits = sizing.limits(
        min(gpu.memory_gib for gpu in gpus), len(gpus), found.cores, found.memory_gib, mps=chosen.compose.vlm_mps
    )
    return values | {name: value for name, value in limits.variables().items() if not chosen.is_set(name)}


def _write_env(root: Path, text: str, values: Mapping[str, str]) -> None:
    if env_file.write(root / ENV, env_file.edited(text, values)):
        _say(f"{ENV} written")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
