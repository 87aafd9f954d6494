from dataclasses import replace

import pytest

from hps.prepare import host
from hps.prepare.host import Gpu, Host, Needs

VLLM = ("HPS_VLM_IMAGE", "vllm/vllm-openai:v0.33.0")
GPU = Gpu("0", "GPU-a", "NVIDIA H200", 140.4, 9.0, "Default", "580.95.05")
HOST = Host("x86_64", "26.1.5", "v2.26.1-4", 16, 128.0, 100.0, 100.0, (GPU,))
NEEDS = Needs(models_gib=3.0, docker_gib=60.0, memory_gib=48.0, devices=("0",), images=(VLLM,))


def test_a_host_that_will_do() -> None:
    assert host.problems(HOST, NEEDS) == []
    assert host.problems(replace(HOST, gpus=()), replace(NEEDS, devices=())) == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"machine": "aarch64"}, "processor: aarch64; needed: x86-64, as the images are"),
        ({"docker": "19.03.15"}, "Docker: 19.03.15; needed: 20.10 or newer"),
        ({"docker": "20.09"}, "Docker: 20.09; needed: 20.10 or newer"),
        ({"compose": "1.29.2"}, "Docker Compose: 1.29.2; needed: 2.24.4 or newer"),
        ({"compose": "v2.3.3"}, "Docker Compose: v2.3.3; needed: 2.24.4 or newer"),
        ({"compose": "v2.24.3"}, "Docker Compose: v2.24.3; needed: 2.24.4 or newer"),
        ({"memory_gib": 47.9}, "memory: 47.9 GiB; needed: 48.0 GiB"),
        ({"free_models_gib": 2.5}, "free disk for models: 2.5 GiB; needed: 3.0 GiB"),
        ({"free_docker_gib": 9.0}, "free disk for Docker's images: 9.0 GiB; needed: 60.0 GiB"),
        (
            {"gpus": (), "gpu_error": "no driver"},
            "GPU: none seen by nvidia-smi (no driver); needed: an NVIDIA GPU, its driver, the NVIDIA Container Toolkit",
        ),
        ({"gpus": (replace(GPU, index="1"),)}, "GPU: HPS_DEVICE_ID(S) names 0; there are 1"),
    ],
)
def test_what_a_host_lacks(found: dict[str, object], problem: str) -> None:
    assert host.problems(replace(HOST, **found), NEEDS) == [problem]  # type: ignore[arg-type]


@pytest.mark.parametrize("docker", ["20.10", "20.10.24+dfsg1", "28.0.1-ce"])
def test_docker_versions_that_will_do(docker: str) -> None:
    assert host.problems(replace(HOST, docker=docker), NEEDS) == []


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"capability": 7.5}, "compute capability 7.5; needed: 8.0"),
        ({"capability": 13.0}, "compute capability 13.0; needed: below 13.0 for vllm/vllm-openai:v0.33.0"),
        ({"mode": "Exclusive_Process"}, "compute mode Exclusive_Process; needed: Default"),
        ({"mode": "Prohibited"}, "compute mode Prohibited"),
        ({"driver": "575.57.08"}, "driver: 575.57.08; needed: 580 for vllm/vllm-openai:v0.33.0 (CUDA 13.0)"),
    ],
)
def test_what_a_gpu_lacks(gpu: dict[str, object], words: str) -> None:
    (problem,) = host.problems(replace(HOST, gpus=(replace(GPU, **gpu),)), NEEDS)  # type: ignore[arg-type]
    assert words in problem


def test_exclusive_mode_with_mps() -> None:
    exclusive = replace(HOST, gpus=(replace(GPU, mode="Exclusive_Process"),))
    assert host.problems(exclusive, replace(NEEDS, mps=True)) == []


def test_gpus_that_are_not_used_may_be_anything() -> None:
    old = replace(GPU, index="1", uuid="GPU-b", capability=3.7)
    both = replace(HOST, gpus=(GPU, old))
    assert host.problems(both, NEEDS) == []
    assert len(host.problems(both, replace(NEEDS, devices=("GPU-a", "GPU-b")))) == 1


@pytest.mark.parametrize(
    ("variable", "image", "driver"),
    [
        ("HPS_VLM_IMAGE", "vllm/vllm-openai:v0.33.0", 580),
        ("HPS_VLM_IMAGE", "vllm/vllm-openai:v0.33.0-cu129", 575),
        ("HPS_VLM_IMAGE", "ccr.example/paddlepaddle/paddleocr-genai-vllm-server:latest-nvidia-gpu", 560),
        ("HPS_TRITON_IMAGE", "nvcr.io/nvidia/tritonserver:25.07-py3", 535),
        ("HPS_TORCH", "torch==2.13.0", 580),
        ("HPS_TORCH", "torch==2.13.0 --index-url https://example/cu126", None),
        ("HPS_VLM_IMAGE", "registry.example/own:1", None),
    ],
)
def test_what_images_need(variable: str, image: str, driver: int | None) -> None:
    needs = host.image_needs(variable, image)
    assert (needs.driver if needs else None) == driver
