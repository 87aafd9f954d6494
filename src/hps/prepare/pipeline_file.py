"""pipeline_config.yaml of a prepared release. Comments and whatever a user has tuned stay as they are. Pure."""

import importlib.resources
from collections.abc import Sequence
from typing import Any, Final

import yaml

from hps import config_schema
from hps.config_schema import ConfigError
from hps.prepare.problems import PrepareError

Path = tuple[str, ...]

_VLM: Final[Path] = ("SubModules", "VLRecognition")
_GENAI: Final[Path] = (*_VLM, "genai_config")
# Part of a release → where its folder is named.
_FOLDERS: Final[dict[str, Path]] = {
    "layout": ("SubModules", "LayoutDetection", "model_dir"),
    "orientation": ("SubPipelines", "DocPreprocessor", "SubModules", "DocOrientationClassify", "model_dir"),
    "unwarping": ("SubPipelines", "DocPreprocessor", "SubModules", "DocUnwarping", "model_dir"),
}


def shipped(release: str) -> str:
    """The file that comes with a release. Raises PrepareError."""
    file = importlib.resources.files("hps") / "releases" / f"{release}.yaml"
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise PrepareError(f"there is no release {release}") from error


def prepared(text: str, release: str, vlm_url: str, parts: Sequence[str], folder: str) -> str:
    """`text` asking the VLM servers at `vlm_url` (without /v1), with the models of `parts` in `folder`.

    Raises PrepareError: no VLM name, another release, a file that the pipeline would refuse.
    """
    text = with_vlm_server(text, vlm_url)
    for part in parts:
        if part in _FOLDERS and value(text, _FOLDERS[part]) is None:
            text = with_value(text, _FOLDERS[part], f"{folder}/{part}")
    vlm_name(text)
    try:
        file = config_schema.validated(yaml.safe_load(text))
    except ConfigError as error:
        raise PrepareError(f"pipeline_config.yaml of {release}: {error}") from error
    if file.pipeline_name != release:
        raise PrepareError(
            f"pipeline_config.yaml of {release} is for {file.pipeline_name}: move it away, and try again"
        )
    return text


def with_vlm_server(text: str, vlm_url: str) -> str:
    """The VLM is asked over HTTP: `backend: vllm-server` and `server_url`, whatever was there before.

    With the reference's `native` the VLM servers idle and pages take ten times as long. Raises PrepareError.
    """
    if _node(text, (*_GENAI, "backend")) is None:
        raise PrepareError(f"pipeline_config.yaml has no {'.'.join(_GENAI)}.backend")
    text = with_value(text, (*_GENAI, "backend"), "vllm-server")
    return with_value(text, (*_GENAI, "server_url"), f"{vlm_url}/v1", after="backend")


def vlm_name(text: str) -> str:
    """The name under which the VLM is asked for. Raises PrepareError."""
    name = value(text, (*_VLM, "model_name"))
    if not isinstance(name, str) or not name:
        raise PrepareError(f"pipeline_config.yaml names no VLM at {'.'.join(_VLM)}.model_name")
    return name


def value(text: str, path: Path) -> Any:
    """What stands at `path`; None when nothing does."""
    found: Any = _loaded(text)
    for key in path:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found


def with_value(text: str, path: Path, new: str, after: str | None = None) -> str:
    """`text` with the scalar at `path` replaced; where there is none, a line behind the key `after` next to it.

    Raises PrepareError when there is no place for it.
    """
    if value(text, path) == new:
        return text
    node = _node(text, path)
    if node is None:
        neighbour = _node(text, (*path[:-1], after)) if after else None
        if neighbour is None:
            raise PrepareError(f"pipeline_config.yaml has no {'.'.join(path)}")
        return _line_behind(text, neighbour, f"{path[-1]}: {new}")
    if not isinstance(node, yaml.ScalarNode):
        raise PrepareError(f"pipeline_config.yaml: {'.'.join(path)} must be one value")
    start, end = node.start_mark.index, node.end_mark.index
    space = " " if start == end and text[start - 1 : start] == ":" else ""  # `key:` with nothing behind it
    return text[:start] + space + new + text[end:]


def _line_behind(text: str, node: yaml.Node, line: str) -> str:
    start = text.rfind("\n", 0, node.start_mark.index) + 1
    end = text.find("\n", node.end_mark.index)
    end = len(text) if end < 0 else end
    indent = text[start : len(text[start:]) - len(text[start:].lstrip(" ")) + start]
    return text[:end] + f"\n{indent}{line}" + text[end:]


def _node(text: str, path: Path) -> yaml.Node | None:
    node: yaml.Node | None = _composed(text)
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((entry for name, entry in node.value if name.value == key), None)
    return node


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise PrepareError(f"pipeline_config.yaml is not YAML: {getattr(error, 'problem', error)}") from error


def _loaded(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PrepareError(f"pipeline_config.yaml is not YAML: {getattr(error, 'problem', error)}") from error
