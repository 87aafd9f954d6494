"""What the pipeline does when a request says nothing: the values of pipeline_config.yaml (SPEC A.10, C.1, G.5).

Each release ships its file; HPS_PIPELINE_CONFIG names a user's own. The HPS_ variables win over either.
"""

import importlib.resources
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import yaml

from hps import config_schema
from hps.config_schema import (
    ConfigError,
    FileStorageSection,
    GenaiSection,
    HpiSection,
    LayoutDetectionSection,
    PipelineFile,
)
from hps.document import ModelSettings
from hps.layout.postprocess import LayoutRules
from hps.settings import Settings
from hps.storage import MAX_URL_LIFE_S, BucketConfig, FolderConfig, MemoryConfig, StorageConfig, gives_urls

__all__ = ["ConfigError", "GenaiClient", "PipelineConfig", "Preprocessor", "effective", "for_release", "load"]

log = logging.getLogger(__name__)

LayoutModel = Literal["PP-DocLayoutV2", "PP-DocLayoutV3"]

_BATCH: Final = "no page waits for others to fill a batch"
# Known keys that do nothing here, with the reason; reported when a user's file gives them a value.
WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "batch_size": _BATCH,
        "use_queues": "the stages always overlap",
        "layout_prep_cpu_workers": "crops are prepared on all cores; for more processes set HPS_COORDINATORS",
        "SubModules.LayoutDetection.batch_size": "set HPS_LAYOUT_BATCH_SIZE instead",
        "SubModules.VLRecognition.batch_size": "each block is a request of its own; set HPS_VLM_MAX_CONCURRENCY",
        "SubModules.VLRecognition.model_dir": "the VLM server holds the weights",
        "SubModules.VLRecognition.use_hpip": "the VLM runs in the VLM server",
        "SubModules.VLRecognition.hpi_config.backend": "the VLM runs in the VLM server",
        "SubPipelines.DocPreprocessor.batch_size": _BATCH,
        "SubPipelines.DocPreprocessor.SubModules.DocOrientationClassify.batch_size": _BATCH,
        "SubPipelines.DocPreprocessor.SubModules.DocUnwarping.batch_size": _BATCH,
    }
)
_HPI_DETAILS: Final = ("backend_config", "auto_config", "auto_paddle2onnx", "hpi_info", "model_name", "device_type")
# Inference library of the reference → layout backend that does the same here.
_HPI_BACKENDS: Final[Mapping[str | None, str]] = MappingProxyType({None: "onnx", "onnxruntime": "onnx"})


@dataclass(frozen=True, slots=True)
class GenaiClient:
    """How the VLM server is reached. server_url has no /v1; None means: as the HPS_VLM_ variable says."""

    server_url: str | None = None
    max_concurrency: int | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float | None = None
    max_retries: int | None = None


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """The document preprocessor (SPEC B.4).

    by_default: it runs when a request names neither part. orientation, unwarping: what a running preprocessor does
    where the request says nothing.
    """

    by_default: bool = False
    orientation: bool = True
    unwarping: bool = True
    orientation_model_dir: Path | None = None
    unwarping_model_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """max_pages: pages of a document that are processed, None for all; max_output_size: (width, height) of images.

    layout_backend: the HPS_LAYOUT_BACKEND that the file asks for, None if it asks for none.
    url_expires_s: life of returned URLs, -1 for the longest that the store allows.
    notes: what an operator should read once about the file.
    """

    release: str = "PaddleOCR-VL-1.6"
    vlm_model: str = "PaddleOCR-VL-1.6-0.9B"
    layout: LayoutRules = field(default_factory=LayoutRules)
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    visualize: bool = True
    max_pages: int | None = None
    max_output_size: tuple[int, int] = (2000, 2000)
    layout_model: LayoutModel = "PP-DocLayoutV3"
    layout_model_dir: Path | None = None
    layout_backend: str | None = None
    preprocessor: Preprocessor = field(default_factory=Preprocessor)
    genai: GenaiClient = field(default_factory=GenaiClient)
    return_urls: bool = False
    storage: StorageConfig | None = None
    url_expires_s: int = -1
    notes: tuple[str, ...] = ()


@cache
def for_release(name: str) -> PipelineConfig:
    """The configuration that ships with a release. Raises ConfigError for a release that does not exist."""
    file = importlib.resources.files("hps") / "releases" / f"{name}.yaml"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"there is no release {name}") from error
    shipped = _config(config_schema.validated(yaml.safe_load(text)), PipelineConfig())
    return replace(shipped, notes=())  # its own comments say which keys have no effect


def load(path: Path) -> PipelineConfig:
    """A user's file; what it leaves out is as the release's own file has it.

    (Except Serving.extra.max_num_input_imgs, which is 10 where it is missing, as in the reference.)
    Raises ConfigError that names each key that is unknown, of the wrong type or range, or asks for the impossible.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"pipeline configuration {path} is not there: if this is a prepared release, run ./prepare.sh first, with "
            "this HPS_PIPELINE_NAME"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"pipeline configuration {path} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ConfigError(f"pipeline configuration {path} is not YAML: {error.problem}{line}") from error
    except yaml.YAMLError as error:  # the text of others repeats the file, which may hold keys
        raise ConfigError(f"pipeline configuration {path} is not YAML") from error
    parsed = config_schema.validated(data)
    return _config(parsed, for_release(parsed.pipeline_name))


def effective(settings: Settings, *, report: bool = False) -> tuple[PipelineConfig, Settings]:
    """The configuration that the settings name, and the settings with the file's values where no variable is set.

    report: log what has no effect; for the first process of several that read the same file. Raises ConfigError; also
    when the file is of another release than HPS_PIPELINE_NAME, which other processes go by.
    """
    if settings.pipeline_config is None:
        return for_release(settings.pipeline_name), settings
    config = load(settings.pipeline_config)
    if config.release != settings.pipeline_name:
        raise ConfigError(
            f"pipeline_name: the file is for {config.release}, but HPS_PIPELINE_NAME is {settings.pipeline_name}; "
            f"set HPS_PIPELINE_NAME={config.release}"
        )
    from_file: dict[str, Any] = {
        "vlm_url": config.genai.server_url,
        "vlm_model_name": config.vlm_model,
        "vlm_max_concurrency": config.genai.max_concurrency,
        "vlm_api_key": config.genai.api_key,
        "vlm_timeout": config.genai.timeout_s,
        "vlm_retries": config.genai.max_retries,
        "layout_backend": config.layout_backend,
        "layout_model_dir": config.layout_model_dir,
        "orientation_model_dir": config.preprocessor.orientation_model_dir,
        "unwarping_model_dir": config.preprocessor.unwarping_model_dir,
    }
    unset = {
        name: value for name, value in from_file.items() if value is not None and name not in settings.model_fields_set
    }
    filled = settings.model_copy(update=unset)
    if not report:
        return config, filled
    for note in config.notes:
        log.warning("pipeline configuration: %s", note)
    if filled.layout_backend != "transformers" and any(name.endswith("model_dir") for name in unset):
        log.warning(
            "pipeline configuration: model_dir has no effect: the layout backend %s brings its own models",
            filled.layout_backend,
        )
    return config, filled


# --- from the file's schema to ours ---


def _config(file: PipelineFile, base: PipelineConfig) -> PipelineConfig:
    """`base` has the values of what the file leaves out."""
    layout, vlm, extra = file.SubModules.LayoutDetection, file.SubModules.VLRecognition, file.Serving.extra
    client = vlm.genai_config.client_kwargs
    backend, hpi_notes = _layout_backend(file)
    return_urls = _or(file.Serving.return_urls, _or(extra.return_img_urls, base.return_urls))
    storage = _storage(extra.file_storage) if extra.file_storage else base.storage
    if return_urls and not gives_urls(storage):
        raise ConfigError(
            "Serving.return_urls: URLs need a Serving.extra.file_storage that can give them (type bos or s3)"
        )
    return PipelineConfig(
        release=file.pipeline_name,
        vlm_model=client.model_name or vlm.model_name or base.vlm_model,
        layout=_layout_rules(layout, base.layout),
        model_settings=_model_settings(file, base.model_settings),
        visualize=_or(file.Serving.visualize, base.visualize),
        max_pages=extra.max_num_input_imgs,
        max_output_size=_pair(extra.max_output_img_size, base.max_output_size),
        layout_model=layout.model_name or base.layout_model,
        layout_model_dir=_directory(layout.model_dir),
        layout_backend=backend,
        preprocessor=_preprocessor(file, base.preprocessor),
        genai=_genai(vlm.genai_config, base.genai),
        return_urls=return_urls,
        storage=storage,
        url_expires_s=extra.url_expires_in,
        notes=(*_notes(file), *hpi_notes),
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _directory(value: str | None) -> Path | None:
    return Path(value) if value else None


def _pair(value: list[int] | None, default: tuple[int, int]) -> tuple[int, int]:
    return (value[0], value[1]) if value else default


def _layout_rules(section: LayoutDetectionSection, base: LayoutRules) -> LayoutRules:
    return LayoutRules(
        threshold=_frozen(section.threshold, base.threshold),
        nms=_or(section.layout_nms, base.nms),
        unclip=_frozen(section.layout_unclip_ratio, base.unclip),
        merge_modes=_frozen(section.layout_merge_bboxes_mode, base.merge_modes),
        shape_mode=base.shape_mode,
    )


def _frozen(value: Any, default: Any) -> Any:
    if value is None:
        return default
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(entry, None) for key, entry in value.items()})
    return tuple(map(float, value)) if isinstance(value, list) else value


def _model_settings(file: PipelineFile, base: ModelSettings) -> ModelSettings:
    labels = file.markdown_ignore_labels
    return ModelSettings(
        use_doc_preprocessor=_or(file.use_doc_preprocessor, base.use_doc_preprocessor),
        use_layout_detection=_or(file.use_layout_detection, base.use_layout_detection),
        use_chart_recognition=_or(file.use_chart_recognition, base.use_chart_recognition),
        use_seal_recognition=_or(file.use_seal_recognition, base.use_seal_recognition),
        use_ocr_for_image_block=_or(file.use_ocr_for_image_block, base.use_ocr_for_image_block),
        format_block_content=_or(file.format_block_content, base.format_block_content),
        merge_layout_blocks=_or(file.merge_layout_blocks, base.merge_layout_blocks),
        markdown_ignore_labels=base.markdown_ignore_labels if labels is None else tuple(labels),
        return_layout_polygon_points=base.return_layout_polygon_points,
    )


def _preprocessor(file: PipelineFile, base: Preprocessor) -> Preprocessor:
    section = file.SubPipelines.DocPreprocessor
    return Preprocessor(
        by_default=_or(file.use_doc_preprocessor, base.by_default),
        orientation=_or(section.use_doc_orientation_classify, base.orientation),
        unwarping=_or(section.use_doc_unwarping, base.unwarping),
        orientation_model_dir=_directory(section.SubModules.DocOrientationClassify.model_dir),
        unwarping_model_dir=_directory(section.SubModules.DocUnwarping.model_dir),
    )


def _genai(section: GenaiSection, base: GenaiClient) -> GenaiClient:
    client, url = section.client_kwargs, section.server_url
    return GenaiClient(
        server_url=url.rstrip("/").removesuffix("/v1") if url else base.server_url,
        max_concurrency=section.max_concurrency or base.max_concurrency,
        api_key=client.api_key,
        timeout_s=client.timeout,
        max_retries=client.max_retries,
    )


def _storage(section: FileStorageSection) -> StorageConfig:
    place = "Serving.extra.file_storage"
    required = {"memory": (), "file_system": ("directory",)}.get(section.type, ("endpoint", "ak", "sk", "bucket_name"))
    missing = [f"{place}.{name}" for name in required if not getattr(section, name)]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: required for the storage type {section.type}")
    if section.type == "memory":
        return MemoryConfig()
    if section.type == "file_system":
        return FolderConfig(Path(section.directory or ""))
    return BucketConfig(
        endpoint=section.endpoint or "",
        access_key=section.ak or "",
        secret_key=section.sk or "",
        bucket=section.bucket_name or "",
        key_prefix=section.key_prefix or "",
        region=section.region,
        connect_timeout_s=(section.connection_timeout_in_mills or 10_000) / 1000,
    )


# --- what the file asks for and does not get ---


def _notes(file: PipelineFile) -> list[str]:
    given = dict(config_schema.given(file))
    notes = [
        f"{path} has no effect: {WITHOUT_EFFECT[path]}"
        for path in given
        if given[path] is not None and path in WITHOUT_EFFECT
    ]
    genai_backend = given.get("SubModules.VLRecognition.genai_config.backend")
    if genai_backend not in (None, "vllm-server"):
        notes.append(
            f"SubModules.VLRecognition.genai_config.backend is {genai_backend}, which has no effect: "
            "the VLM is always asked over HTTP, in the way that vLLM's server understands"
        )
    if "Serving.extra.return_img_urls" in given:
        notes.append("Serving.extra.return_img_urls is the old name of Serving.return_urls")
    if "Serving.extra.max_num_input_imgs" not in given:
        notes.append("Serving.extra.max_num_input_imgs is missing: 10 pages, as in the reference; null means all")
    if file.Serving.extra.url_expires_in > MAX_URL_LIFE_S:
        raise ConfigError(f"Serving.extra.url_expires_in: S3 URLs live at most {MAX_URL_LIFE_S} s (7 days)")
    return notes


def _layout_backend(file: PipelineFile) -> tuple[str | None, list[str]]:
    """The layout backend that `use_hpip` and `hpi_config` ask for, the section's own before the file's."""
    section = file.SubModules.LayoutDetection
    on = _or(section.use_hpip, file.use_hpip)
    own = bool(section.hpi_config.model_fields_set)
    hpi, place = (section.hpi_config, "SubModules.LayoutDetection.") if own else (file.hpi_config, "")
    notes = [f"{path} has no effect: {reason}" for path, reason in _without_effect_hpi(file, hpi, place)]
    if on is False or (on is None and hpi.backend is None):
        return None, notes
    if hpi.backend not in _HPI_BACKENDS:
        raise ConfigError(
            f"{place}hpi_config.backend: {hpi.backend} has no counterpart here; take it out and set "
            "HPS_LAYOUT_BACKEND=transformers (PyTorch, for GPUs) or HPS_LAYOUT_BACKEND=onnx (ONNX Runtime)"
        )
    return _HPI_BACKENDS[hpi.backend], notes


def _without_effect_hpi(file: PipelineFile, hpi: HpiSection, place: str) -> list[tuple[str, str]]:
    details = [
        (f"{place}hpi_config.{name}", "the layout backend has its own HPS_LAYOUT_ variables")
        for name in _HPI_DETAILS
        if getattr(hpi, name) is not None
    ]
    preprocessor = "SubPipelines.DocPreprocessor."
    return details + [
        (path, "the preprocessor's models run in the layout backend")
        for path, value in config_schema.given(file)
        if path.startswith(preprocessor) and path.endswith(("use_hpip", "hpi_config.backend")) and value
    ]
