"""Every setting of every part: name, type, default, range. Constructed once a process, at its composition root.

The variable of a field is `HPS_` + its name in upper case. Real environment variables win over a dotenv file. A
variable with our prefix that no field has stops the start (pydantic alone would let a typo in a real variable pass);
one that only the official kit knows is named once in a warning with what replaces it.
"""

import logging
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import AfterValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hps.compose_settings import COMPOSE_ONLY
from hps.version import VERSION

log = logging.getLogger(__name__)

PREFIX = "HPS_"

# Variables of the official kit that do nothing here → what to use instead. Read by no process of ours.
OFFICIAL_WITHOUT_EFFECT = {
    "HPS_PADDLEX_VERSION": f"this kit carries its own pipeline (version {VERSION}); nothing to set",
    "HPS_SDK_VERSION": f"this kit carries its own pipeline (version {VERSION}); nothing to set",
    "HPS_SDK_DIR": "the pipeline is part of this kit; choose the release with HPS_PIPELINE_NAME",
}

Pipeline = Literal["PaddleOCR-VL", "PaddleOCR-VL-1.5", "PaddleOCR-VL-1.6"]


class SettingsError(ValueError):
    """The environment cannot be used; the message names the variables."""


def _http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


class Settings(BaseSettings):
    """Frozen. Times in seconds unless the name says otherwise, sizes in bytes, pictures in pixels."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # --- addresses ---
    host: str = Field("0.0.0.0", description="Address the gateway listens on")
    port: int = Field(8080, ge=1, le=65535, description="Port the gateway listens on")
    triton_url: str = Field("paddleocr-vl-pipeline:8001", description="Triton's gRPC address, host:port")
    vlm_url: HttpUrl = Field("http://paddleocr-vlm-server:8080", description="VLM server, without /v1")

    # --- model ---
    pipeline_name: Pipeline = Field("PaddleOCR-VL-1.6", description="Release whose rules and model names are used")
    pipeline_config: Path | None = Field(
        None, description="pipeline_config.yaml in the reference's schema (unset: the release's own)"
    )
    vlm_model_name: str | None = Field(None, description="Model name asked of the VLM server (unset: the release's)")

    # --- gateway ---
    uvicorn_workers: int = Field(1, ge=1, le=64, description="Gateway processes; every limit below holds for each")
    max_concurrent_inference_requests: int = Field(16, ge=1, description="/layout-parsing requests in work at once")
    max_concurrent_non_inference_requests: int = Field(64, ge=1, description="Other requests in work at once")
    max_queued_requests: int = Field(512, ge=0, description="Requests waiting in front of each of the two limits")
    inference_timeout: float = Field(600, gt=0, description="Seconds from arrival to answer, waiting included")
    health_check_timeout: float = Field(5, gt=0, description="Seconds for each check of /health/ready")
    triton_outage: float = Field(
        30, ge=0, description="Seconds without Triton that requests wait through; what it had in work is begun again"
    )
    max_queue_wait: float | None = Field(
        None, gt=0, description="Seconds of waiting that a request may have ahead of it (unset: HPS_INFERENCE_TIMEOUT)"
    )
    stop_delay: float = Field(
        0, ge=0, description="Seconds after a signal to stop for which requests are still taken, and /health says 503"
    )
    max_body_bytes: int = Field(512 * 2**20, ge=1024, description="Largest request body")
    body_timeout: float = Field(
        30, gt=0, description="Seconds for a request body to come, and one more for each 32 KiB of it"
    )
    body_memory_bytes: int = Field(
        2**30, ge=1024, description="Request bodies held at once, waiting or in work; never less than the largest body"
    )
    api_keys_file: Path | None = Field(
        None, description="Names and hashes of API keys, written by `hps keys` (unset: everybody may come in)"
    )
    max_requests_per_key: int | None = Field(
        None, ge=1, description="Requests of one API key in work or waiting at once (unset: no limit of its own)"
    )
    cache_url: str | None = Field(
        None, description="Redis that keeps answers by content, redis://HOST:PORT/DB (unset: nothing is kept)"
    )
    cache_ttl: int = Field(86_400, ge=1, description="Seconds for which an answer is kept")
    cache_max_answer_bytes: int = Field(32 * 2**20, ge=1, description="Largest answer that is kept")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING, ERROR; anything else means INFO")
    filter_health_access_log: bool = Field(True, description="Leave /health out of the access log")

    # --- metrics ---
    metrics_host: str = Field("0.0.0.0", description="Address that metrics are served at, without a key")
    metrics_gateway_port: int = Field(9091, ge=0, le=65535, description="Port of the gateway's /metrics (0: none)")
    metrics_pipeline_port: int = Field(9092, ge=0, le=65535, description="Port of the pipeline's /metrics (0: none)")

    # --- pipeline ---
    coordinators: int | None = Field(
        None, ge=1, le=64, description="Processes of layout-parsing (unset: config.pbtxt, which says 1)"
    )
    max_pipeline_requests: int = Field(256, ge=1, description="Requests in work at once in one coordinator")
    decode_workers: int = Field(2, ge=1, le=64, description="Processes that decode files, for each coordinator")
    decode_timeout: float = Field(60, gt=0, description="Seconds for one page to be decoded")
    max_image_pixels: int = Field(178_956_970, ge=1, description="Largest page that is decoded")
    max_pages: int = Field(
        2000, ge=1, description="Most pages that are processed of one document; with more, it is refused"
    )
    max_document_pixels: int = Field(
        20_000_000_000, ge=1, description="Most pixels of these pages together, for which a document is decoded"
    )
    pdf_render_scale: float = Field(2.0, gt=0, le=10, description="PDF pixels a point; 2.0 is 144 dpi")
    pdf_min_render_scale: float = Field(0.1, gt=0, le=10, description="Scale under which a huge PDF page is refused")
    pages_in_work: int = Field(
        16, ge=1, le=4096, description="Pages of one request in work at once, those included that only wait for the VLM"
    )
    page_window: int = Field(8, ge=1, le=256, description="Of these, pages whose bitmaps are in memory at once")
    request_bitmap_bytes: int = Field(
        512 * 2**20, ge=1, description="These bitmaps together: of large pages fewer are held, at least one"
    )
    url_input: Literal["off", "public", "any"] = Field(
        "public", description="Which URLs `file` may name: off (none), public (public addresses only), any"
    )
    url_timeout: float = Field(30, gt=0, description="Seconds for fetching a URL")
    url_max_bytes: int = Field(256 * 2**20, ge=1, description="Largest file that is fetched from a URL")

    # --- layout ---
    layout_backend: Literal["onnx", "fixed", "transformers"] = Field("onnx", description="Layout model")
    layout_instances: int | None = Field(None, ge=1, le=64, description="Processes of layout-detection")
    layout_batch_size: int | None = Field(None, ge=1, le=64, description="Pages in one layout batch at most")
    layout_in_flight: int = Field(16, ge=1, le=512, description="Pages at the layout model from one coordinator")
    layout_threads: int = Field(2, ge=1, le=64, description="CPU threads of the layout model's process")
    layout_model_dir: Path | None = Field(
        None, description="Folder of PP-DocLayoutV2 or V3 (config.json, model.safetensors) for `transformers`"
    )
    orientation_model_dir: Path | None = Field(
        None, description="Folder of PP-LCNet_x1_0_doc_ori for `transformers` (unset: no orientation there)"
    )
    unwarping_model_dir: Path | None = Field(
        None, description="Folder of UVDoc for `transformers` (unset: no unwarping)"
    )
    layout_compile: bool = Field(
        False, description="Compile the layout model of `transformers` when it starts; needs a C compiler in the image"
    )
    layout_compile_cache: Path | None = Field(
        None, description="Folder that keeps compiled models between starts (unset: a temporary one of the machine)"
    )
    layout_fixed_file: Path | None = Field(None, description="Boxes of the backend `fixed`, for tests and benchmarks")
    layout_fixed_delay: float = Field(0, ge=0, description="Seconds a batch that the backend `fixed` pretends to work")

    # --- VLM ---
    vlm_replicas: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        1,
        description="VLM servers on ports from HPS_VLM_URL's on (auto: as memory allows; for clients: as answer)",
    )
    vlm_max_concurrency: int = Field(
        200, ge=1, description="Blocks in flight at the VLM servers from one coordinator, fewer while they queue"
    )
    vlm_timeout: float = Field(600, gt=0, description="Seconds for one block")
    vlm_retries: int = Field(4, ge=0, le=10, description="Further tries of a block after a transient failure")
    vlm_outage: float = Field(120, ge=0, description="Seconds without any VLM server that requests wait through")
    vlm_guard: Literal["auto", "always", "off"] = Field(
        "auto",
        description="Blocks left when they repeat themselves: auto (those watched, as they need it), always, off",
    )
    vlm_block_time: float = Field(
        240, gt=0, description="Seconds that a watched block may go on for; what is there by then is its text"
    )
    vlm_pixel_budget: Literal["auto", "differing"] = Field(
        "auto", description="Which blocks carry mm_processor_kwargs: all if servers take them, or none with the default"
    )
    vlm_api_key: str | None = Field(None, description="Bearer key for the VLM server")

    # --- hps triton ---
    drain_timeout: float = Field(30, gt=0, description="Seconds that requests in work get when the service stops")
    watchdog_timeout: float = Field(
        8, ge=0, description="Seconds without an answer of the models after which Triton is started anew (0: never)"
    )
    model_repository: Path | None = Field(None, description="Triton models (unset: model_repo of the installed kit)")
    state_dir: Path | None = Field(None, description="Rendered models and logs of a run (unset: a temporary folder)")
    triton_http_port: int = Field(8000, ge=1, le=65535, description="Triton's HTTP port")
    triton_grpc_port: int = Field(8001, ge=1, le=65535, description="Triton's gRPC port")
    triton_metrics_port: int = Field(8002, ge=1, le=65535, description="Triton's metrics port")
    triton_host: str = Field("0.0.0.0", description="Address Triton listens on")

    # --- embedded default ---
    embedded_quality: Literal["fast", "better"] = Field("fast", description="Size of the CPU recogniser")
    embedded_threads: int = Field(2, ge=1, le=64, description="CPU threads of the recogniser")

    @field_validator("log_level", mode="after")
    @classmethod
    def _known_level(cls, value: str) -> str:
        return value.upper() if value.upper() in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "INFO"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Everything comes in as arguments from `load`, so that the environment is read in one place.
        return (init_settings,)


def load(environ: dict[str, str] | None = None, *, env_file: Path | None = None, **overrides: Any) -> Settings:
    """Settings from the environment over `env_file` (when it exists), `overrides` (fields by name) over both.

    Raises SettingsError that names every unknown or invalid variable, never its value.
    """
    variables: dict[str, str] = {}
    if env_file is not None and env_file.exists():
        variables.update({name: value for name, value in dotenv_values(env_file).items() if value is not None})
    variables.update(os.environ if environ is None else environ)
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX) and value != ""}
    for name in sorted(ours.keys() & OFFICIAL_WITHOUT_EFFECT.keys()):
        log.warning("%s has no effect: %s", name, OFFICIAL_WITHOUT_EFFECT[name])
        del ours[name]
    values: dict[str, Any] = {name.removeprefix(PREFIX).lower(): value for name, value in ours.items()}
    unknown = sorted(set(values) - set(Settings.model_fields) - COMPOSE_ONLY)
    if unknown:
        raise SettingsError("unknown setting: " + ", ".join(variable(name) for name in unknown))
    for name in COMPOSE_ONLY - set(Settings.model_fields):  # a process that sees them (.env) has no use for them
        values.pop(name, None)
    try:
        return Settings(**(values | overrides))
    except ValidationError as error:
        problems = [f"{variable(str(e['loc'][0]))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise SettingsError("invalid setting: " + "; ".join(problems)) from None


# Release → the name under which its VLM is served.
VLM_MODELS: dict[Pipeline, str] = {
    "PaddleOCR-VL": "PaddleOCR-VL-0.9B",
    "PaddleOCR-VL-1.5": "PaddleOCR-VL-1.5-0.9B",
    "PaddleOCR-VL-1.6": "PaddleOCR-VL-1.6-0.9B",
}


def vlm_model(settings: Settings) -> str:
    """The model name asked of the VLM server."""
    return settings.vlm_model_name or VLM_MODELS[settings.pipeline_name]


def variable(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def environment(settings: Settings) -> dict[str, str]:
    """The variables that make a child process see the same settings.

    Those that were set count even at their default: a set variable wins over pipeline_config.yaml, a default does not.
    """
    return {
        variable(name): str(getattr(settings, name))
        for name, field in Settings.model_fields.items()
        if getattr(settings, name) is not None
        and (name in settings.model_fields_set or getattr(settings, name) != field.default)
    }


SECRET = frozenset({"vlm_api_key", "cache_url"})  # a URL may hold a password


def effective(settings: Settings) -> dict[str, str]:
    """Name → value as logged at start, secrets masked."""
    return {
        variable(name): "***"
        if name in SECRET and getattr(settings, name) is not None
        else str(getattr(settings, name))
        for name in Settings.model_fields
    }
