"""The schema of pipeline_config.yaml, as the reference has it (SPEC A.10, C.1, G.5): every key, its type and range.

A key that is not here stops the start. Which of these keys do something is said by `config`.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hps.layout.labels import LABELS
from hps.settings import SettingsError

MERGE_MODES = ("large", "small", "union")


class ConfigError(SettingsError):
    """The pipeline configuration cannot be used; the message names each key by its dotted path."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _entries(value: Any) -> list[Any]:
    """The values of a setting that is one for all classes, one by class id, or null (as the release has it)."""
    if not isinstance(value, Mapping):
        return [] if value is None else [value]
    for key in value:
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < len(LABELS):
            raise ValueError(f"keys must be class ids from 0 to {len(LABELS) - 1}; got {key!r}")
    return list(value.values())


def _threshold(value: Any) -> Any:
    for entry in _entries(value):
        if not (_number(entry) and 0 <= entry <= 1):
            raise ValueError("must be a number from 0 to 1, or such numbers by class id")
    return value


def _unclip_ratio(value: Any) -> Any:
    for entry in _entries(value):
        pair = entry if isinstance(entry, list) else [entry, entry]
        if len(pair) != 2 or not all(_number(ratio) and ratio > 0 for ratio in pair):
            raise ValueError("must be a number over 0, two of them (width, height), or such values by class id")
    return value


def _merge_mode(value: Any) -> Any:
    for entry in _entries(value):
        if entry not in MERGE_MODES:
            raise ValueError(f"must be one of {', '.join(MERGE_MODES)}, or such values by class id")
    return value


def _image_size(value: Any) -> Any:
    if value is not None and not (
        isinstance(value, list) and len(value) == 2 and all(type(side) is int and side > 0 for side in value)
    ):
        raise ValueError("must be two whole numbers over 0: width, height")
    return value


def _openai_url(value: str) -> str:
    if not value.startswith(("http://", "https://")) or not value.rstrip("/").endswith("/v1"):
        raise ValueError("must be the http(s) URL of an OpenAI API, ending in /v1")
    return value


def _url_expiry(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("must be a number of seconds over 0, or -1")
    return value


# A section that is missing or null is an empty one.
_EMPTY = BeforeValidator(lambda value: {} if value is None else value)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())


class HpiSection(_Section):
    """High-performance inference of the reference: which library runs a model."""

    backend: Literal["paddle", "openvino", "onnxruntime", "tensorrt", "om"] | None = None
    backend_config: dict[str, Any] | None = None
    auto_config: bool | None = None
    auto_paddle2onnx: bool | None = None
    hpi_info: dict[str, Any] | None = None
    model_name: str | None = None
    device_type: str | None = None
    device_id: int | None = None


class _Hpip(_Section):
    use_hpip: bool | None = None
    hpi_config: Annotated[HpiSection, _EMPTY] = HpiSection()


class _Model(_Hpip):
    model_dir: str | None = None
    batch_size: int | None = None


class LayoutDetectionSection(_Model):
    module_name: Literal["layout_detection"] | None = None
    model_name: Literal["PP-DocLayoutV2", "PP-DocLayoutV3"] | None = None
    threshold: Annotated[Any, AfterValidator(_threshold)] = None
    layout_nms: bool | None = None
    layout_unclip_ratio: Annotated[Any, AfterValidator(_unclip_ratio)] = None
    layout_merge_bboxes_mode: Annotated[Any, AfterValidator(_merge_mode)] = None


class ClientKwargsSection(_Section):
    """Of the reference's OpenAI client: those that have a counterpart here."""

    model_name: str | None = None
    api_key: str | None = None
    timeout: float | None = Field(None, gt=0)
    max_retries: int | None = Field(None, ge=0, le=10)


class GenaiSection(_Section):
    backend: (
        Literal["native", "vllm-server", "fastdeploy-server", "sglang-server", "mlx-vlm-server", "llama-cpp-server"]
        | None
    ) = None
    server_url: Annotated[str, AfterValidator(_openai_url)] | None = None
    max_concurrency: int | None = Field(None, ge=1)
    client_kwargs: Annotated[ClientKwargsSection, _EMPTY] = ClientKwargsSection()


class VLRecognitionSection(_Model):
    module_name: Literal["vl_recognition"] | None = None
    model_name: str | None = None
    genai_config: Annotated[GenaiSection, _EMPTY] = GenaiSection()


class SubModulesSection(_Section):
    LayoutDetection: Annotated[LayoutDetectionSection, _EMPTY] = LayoutDetectionSection()
    VLRecognition: Annotated[VLRecognitionSection, _EMPTY] = VLRecognitionSection()


class DocOrientationClassifySection(_Model):
    module_name: Literal["doc_text_orientation"] | None = None
    model_name: Literal["PP-LCNet_x1_0_doc_ori"] | None = None


class DocUnwarpingSection(_Model):
    module_name: Literal["image_unwarping"] | None = None
    model_name: Literal["UVDoc"] | None = None


class PreprocessorModulesSection(_Section):
    DocOrientationClassify: Annotated[DocOrientationClassifySection, _EMPTY] = DocOrientationClassifySection()
    DocUnwarping: Annotated[DocUnwarpingSection, _EMPTY] = DocUnwarpingSection()


class DocPreprocessorSection(_Hpip):
    pipeline_name: Literal["doc_preprocessor"] | None = None
    batch_size: int | None = None
    use_doc_orientation_classify: bool | None = None
    use_doc_unwarping: bool | None = None
    SubModules: Annotated[PreprocessorModulesSection, _EMPTY] = PreprocessorModulesSection()


class SubPipelinesSection(_Section):
    DocPreprocessor: Annotated[DocPreprocessorSection, _EMPTY] = DocPreprocessorSection()


class FileStorageSection(_Section):
    """`bos` and `s3` are both reached through the S3 API; `s3`, region and connection_timeout_in_mills are optional."""

    type: Literal["memory", "file_system", "bos", "s3"]
    directory: str | None = None
    endpoint: str | None = None
    ak: str | None = Field(None, repr=False)
    sk: str | None = Field(None, repr=False)
    bucket_name: str | None = None
    key_prefix: str | None = None
    region: str | None = None
    connection_timeout_in_mills: int | None = Field(None, gt=0)


class ServingExtraSection(_Section):
    max_num_input_imgs: int | None = Field(10, ge=1)
    max_output_img_size: Annotated[Any, AfterValidator(_image_size)] = None
    return_img_urls: bool | None = None
    file_storage: FileStorageSection | None = None
    url_expires_in: Annotated[int, AfterValidator(_url_expiry)] = -1


class ServingSection(_Section):
    visualize: bool | None = None
    return_urls: bool | None = None
    extra: Annotated[ServingExtraSection, _EMPTY] = ServingExtraSection()


class PipelineFile(_Hpip):
    """A whole file. Keys that it leaves out are None, except where the reference's own default is known."""

    pipeline_name: Literal["PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6"]
    batch_size: int | None = None
    use_queues: bool | None = None
    layout_prep_cpu_workers: int | None = None
    use_doc_preprocessor: bool | None = None
    use_layout_detection: bool | None = None
    use_chart_recognition: bool | None = None
    use_seal_recognition: bool | None = None
    use_ocr_for_image_block: bool | None = None
    format_block_content: bool | None = None
    merge_layout_blocks: bool | None = None
    markdown_ignore_labels: list[str] | None = None
    SubModules: Annotated[SubModulesSection, _EMPTY] = SubModulesSection()
    SubPipelines: Annotated[SubPipelinesSection, _EMPTY] = SubPipelinesSection()
    Serving: Annotated[ServingSection, _EMPTY] = ServingSection()


def validated(data: Any) -> PipelineFile:
    """Raises ConfigError that names everything that is wrong, never a value (it may be a key of the store)."""
    if not isinstance(data, Mapping):
        raise ConfigError("pipeline configuration: must be a mapping of keys to values")
    try:
        return PipelineFile.model_validate(data)
    except ValidationError as error:
        problems = [_problem(entry) for entry in error.errors(include_url=False, include_input=False)]
        raise ConfigError("pipeline configuration: " + "; ".join(problems)) from None


def given(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of each key that the file has; sections themselves are not listed."""
    for name in type(section).model_fields:
        if name in section.model_fields_set:
            value = getattr(section, name)
            if isinstance(value, BaseModel):
                yield from given(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value


def _problem(entry: Mapping[str, Any]) -> str:
    path = ".".join(map(str, entry["loc"]))
    if entry["type"] == "extra_forbidden":
        return f"unknown key {path}{_suggestion(path)}"
    message = entry["msg"].removeprefix("Value error, ")
    return f"{path}: {message[:1].lower()}{message[1:]}"


def _suggestion(path: str) -> str:
    """The known key that was probably meant: the same name at another place, or a similar one at this place."""
    known = list(_known_paths(PipelineFile))
    parent, _, name = path.rpartition(".")
    elsewhere = [candidate for candidate in known if candidate.rpartition(".")[2] == name]
    here = {candidate.rpartition(".")[2]: candidate for candidate in known if candidate.rpartition(".")[0] == parent}
    similar = elsewhere[:1] or [here[match] for match in difflib.get_close_matches(name, here, n=1)]
    similar = similar or difflib.get_close_matches(path, known, n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def _known_paths(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield prefix + name
        for option in getattr(field.annotation, "__args__", (field.annotation,)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                yield from _known_paths(option, f"{prefix}{name}.")
