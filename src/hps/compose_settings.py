"""The settings that only the Compose files, the VLM container and `hps prepare` read; the rest is in settings.py."""

from typing import Final

from pydantic import BaseModel, Field


class ComposeSettings(BaseModel):
    """As in settings.py: the variable of a field is HPS_ + its name. The defaults are those of the Compose files."""

    # --- addresses and devices ---
    bind: str = Field("0.0.0.0", description="Address of the host that HPS_PORT is published on")
    triton_bind: str | None = Field(
        None, description="Address of the host that Triton's ports 8000 and 8001 are published on (unset: none)"
    )
    device_id: str = Field("0", description="The GPU, as nvidia-smi numbers it")
    device_ids: str | None = Field(None, description="Several GPUs, separated by commas; after a change: ./prepare.sh")
    runtime: str | None = Field(
        None, description="paddlex: the official pipeline behind our gateway; cpu: embedded models; unset: this kit's"
    )

    # --- models and files ---
    models_dir: str = Field("./models", description="Folder of prepared releases, one folder each")
    config_dir: str = Field("./config", description="Folder of the files that settings name, /config in the containers")
    model_source: str | None = Field(
        None, description="Where ./prepare.sh takes weights from: huggingface, modelscope, or a folder (unset: either)"
    )
    vlm_revision: str | None = Field(None, description="Commit of the VLM on its hub (unset: that of models.lock)")
    layout_revision: str | None = Field(
        None, description="Commit of the layout model on its hub (unset: that of models.lock)"
    )
    huggingface_url: str = Field("https://huggingface.co", description="Hugging Face, or a mirror with its API")
    modelscope_url: str = Field("https://www.modelscope.cn", description="ModelScope, or a mirror with its API")
    sdk_dir: str | None = Field(None, description="Prepared folder of the release; ./prepare.sh writes it")
    paddlex_version: str = Field("3.6", description="Version of the official pipeline for HPS_RUNTIME=paddlex")
    sdk_url: str = Field(
        "https://paddle-model-ecology.bj.bcebos.com/paddlex/PaddleX3.0/deploy/paddlex_hps/public/sdks",
        description="Where its SDKs are",
    )

    # --- VLM container ---
    vlm_replicas: str = Field("auto", description="vLLM servers on a GPU; auto: as many as its memory carries")
    vlm_mps: bool = Field(False, description="Let their kernels overlap through NVIDIA MPS")
    vlm_model: str | None = Field(None, description="Folder of the weights in the VLM container")
    vlm_kv_cache_gib: float | None = Field(None, description="KV cache of a server (unset: from the GPU's memory)")
    vlm_api_processes: int | None = Field(None, description="HTTP processes of a server (unset: 4 for one, else 1)")
    vlm_hang_timeout: float = Field(15, description="Seconds without an answer after which a server is started anew")
    vlm_config: str | None = Field(None, description="YAML file of vLLM flags that win over ours")
    vlm_extra_args: str | None = Field(None, description="Arguments at the end of `vllm serve`; they win over all")

    # --- images ---
    vlm_image: str = Field("vllm/vllm-openai:v0.33.0", description="What the VLM image is built on")
    triton_image: str = Field(
        "nvcr.io/nvidia/tritonserver:25.07-py3", description="What the pipeline's image is built on"
    )
    python_image: str = Field("python:3.11.13-slim-bookworm", description="What the gateway's image is built on")
    docker_image: str = Field("docker:28.3.3-cli", description="Where ./prepare.sh gets Docker's command line from")
    torch: str = Field("torch==2.13.0", description="PyTorch for the pipeline's image, as pip takes it")
    gateway_image: str = Field("paddleocr-vl-hps-gateway:0.1.0", description="Name of the gateway's image")
    pipeline_image: str = Field("paddleocr-vl-hps-pipeline:0.1.0", description="Name of the pipeline's image")
    pipeline_cpu_image: str = Field("paddleocr-vl-hps-pipeline-cpu:0.1.0", description="Name of that without a GPU")
    vlm_server_image: str = Field("paddleocr-vl-hps-vlm:0.1.0", description="Name of the VLM server's image")
    paddlex_image: str | None = Field(
        None, description="The official pipeline for HPS_RUNTIME=paddlex (unset: that of HPS_PADDLEX_VERSION)"
    )
    ca_file: str = Field("/dev/null", description="CA certificate for building behind a proxy that inspects TLS")

    # --- TLS and cache ---
    tls_image: str = Field("haproxy:3.0", description="What ends TLS with compose.tls.yaml")
    tls_certs_dir: str = Field("./certs", description="Folder of tls.pem: certificate, chain and key")
    tls_answer_timeout: str = Field("660s", description="Time for an answer; longer than HPS_INFERENCE_TIMEOUT")
    cache_image: str = Field("redis:7.2-bookworm", description="Redis of compose.cache.yaml")
    cache_memory: str = Field("2gb", description="Memory of kept answers with compose.cache.yaml")
    cache_container_memory: str = Field("3g", description="Memory of its container")

    # --- limits of the containers ---
    gateway_memory: str = Field("4g", description="Memory of the gateway")
    pipeline_memory: str = Field("32g", description="Memory of the pipeline, shared memory and /tmp included")
    vlm_memory: str = Field("64g", description="Memory of the VLM container")
    stop_grace_period: str = Field("60s", description="Time to stop in; longer than HPS_DRAIN_TIMEOUT")


COMPOSE_ONLY: Final = frozenset(ComposeSettings.model_fields)

# Fields of Settings that mean something else inside a container, where they are fixed.
FIXED_IN_CONTAINERS: Final = frozenset(
    {
        "host",
        "port",
        "metrics_host",
        "metrics_gateway_port",
        "metrics_pipeline_port",
        "triton_host",
        "triton_http_port",
        "triton_grpc_port",
        "triton_metrics_port",
        "model_repository",
        "state_dir",
    }
)

# Fields of both classes whose default in compose.yaml is another, or depends on the release.
CONTAINER_DEFAULTS: Final = {
    "layout_backend": "transformers",
    "layout_model_dir": "/models/RELEASE/layout",
    "layout_compile_cache": "/cache",
    "vlm_replicas": "auto",
    "vlm_model": "/models/RELEASE/vlm",
    "pipeline_config": "/models/RELEASE/pipeline_config.yaml",
}
