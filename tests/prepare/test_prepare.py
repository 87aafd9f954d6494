"""./prepare.sh as a user runs it: against hubs on a local server, with a Docker and a GPU that only look like it."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from hps.prepare.images import PREPARE_IMAGE
from tests.fakes.hub import COMMIT, FakeHub, model
from tests.prepare.kit import H200, Kit

RELEASE = "PaddleOCR-VL-1.6"
VLM = f"PaddlePaddle/{RELEASE}"
LAYOUT = "PaddlePaddle/PP-DocLayoutV3_safetensors"
NEXT = "docker compose up --detach --wait"


def models(kit: Kit) -> Path:
    return kit.root / "models" / RELEASE


async def succeeds(kit: Kit, *arguments: str) -> str:
    done = await kit.prepare(*arguments)
    assert done.code == 0, done.said
    assert done.said.rstrip().endswith(NEXT)
    return done.said


async def fails(kit: Kit, *words: str) -> str:
    """It ends with 1 and says all of `words`; nothing that a start would use is there or changed."""
    before = {name: state for name, state in kit.state().items() if ".incoming" not in name}
    done = await kit.prepare()
    assert done.code == 1, done.said
    assert all(word in done.said for word in words), done.said
    assert NEXT not in done.said
    assert {name: state for name, state in kit.state().items() if ".incoming" not in name} == before
    return done.said


async def test_fresh(kit: Kit, hub: FakeHub) -> None:
    said = await succeeds(kit)
    for part, repository in (("vlm", VLM), ("layout", LAYOUT)):
        for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
            assert (models(kit) / part / name).read_bytes() == hub.repositories[repository][name]
        assert {file.name for file in (models(kit) / part).iterdir()} == {
            *("config.json", "model.safetensors", "preprocessor_config.json")
        }
    assert "without orientation" in said  # this hub has none, and the service starts without it
    config = yaml.safe_load((models(kit) / "pipeline_config.yaml").read_text())
    genai = config["SubModules"]["VLRecognition"]["genai_config"]
    assert (genai["backend"], genai["server_url"]) == ("vllm-server", "http://paddleocr-vlm-server:8080/v1")
    preprocessor = config["SubPipelines"]["DocPreprocessor"]["SubModules"]
    assert config["SubModules"]["LayoutDetection"]["model_dir"] == f"/models/{RELEASE}/layout"
    assert preprocessor["DocUnwarping"]["model_dir"] == f"/models/{RELEASE}/unwarping"
    assert preprocessor["DocOrientationClassify"]["model_dir"] is None
    env = kit.env()
    assert env["HPS_PIPELINE_NAME"] == RELEASE
    assert env["HPS_SDK_DIR"] == f"./models/{RELEASE}"
    assert env["HPS_VLM_URL"] == "http://paddleocr-vlm-server:8080"
    locked = json.loads((kit.root / "models.lock").read_text())[RELEASE]["vlm"]["files"]["model.safetensors"]
    assert locked["revisions"] == {"huggingface": COMMIT}
    assert not (kit.root / "models/.incoming").exists()


async def test_images_are_built_from_digests_and_named_by_content(kit: Kit) -> None:
    await succeeds(kit)
    lock = json.loads((kit.root / "images.lock").read_text())
    assert set(lock["bases"]) == {"python:3.11.13-slim-bookworm", *kit.environ.values()}
    assert all(f"{name}@sha256:" in base for name, base in lock["bases"].items())
    for variable, image in lock["images"].items():
        assert kit.env()[variable] == image["name"]
        assert image["name"].endswith(f"-{image['id'].removeprefix('sha256:')[:12]}")


async def test_twice_changes_nothing(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    before = kit.state()
    hub.requests.clear()
    kit.calls()
    await succeeds(kit)
    assert kit.state() == before
    assert not hub.requests.keys() & {VLM, LAYOUT}
    assert not [call for call in kit.calls() if call.startswith(("pull", "tag")) or " build " in call]


async def test_only_named_lines_of_env_change(kit: Kit) -> None:
    text = "# mine\r\nHPS_PORT=9000\r\n\r\nHPS_VLM_URL=http://gpu:9000 \r\nHPS_VLM_MAX_CONCURRENCY=7\r\nOTHER=1"
    (kit.root / ".env").write_bytes(text.encode())
    await succeeds(kit)
    lines = (kit.root / ".env").read_bytes().decode().split("\r\n")
    assert lines[:3] == ["# mine", "HPS_PORT=9000", ""]
    assert "HPS_VLM_URL=http://gpu:9000" in lines
    assert "HPS_VLM_MAX_CONCURRENCY=7" in lines
    assert "OTHER=1" in lines
    config = yaml.safe_load((models(kit) / "pipeline_config.yaml").read_text())
    assert config["SubModules"]["VLRecognition"]["genai_config"]["server_url"] == "http://gpu:9000/v1"


async def test_exported_variables_win(kit: Kit, hub: FakeHub) -> None:
    hub.repositories["PaddlePaddle/PaddleOCR-VL-1.5"] = model("older")
    (kit.root / ".env").write_text(f"HPS_PIPELINE_NAME={RELEASE}\nHPS_VLM_URL=http://file:1\n")
    kit.environ |= {"HPS_PIPELINE_NAME": "PaddleOCR-VL-1.5", "HPS_VLM_URL": "http://exported:2"}
    await succeeds(kit)
    assert kit.env()["HPS_PIPELINE_NAME"] == "PaddleOCR-VL-1.5"
    assert kit.env()["HPS_VLM_URL"] == "http://exported:2"
    assert (kit.root / "models/PaddleOCR-VL-1.5/vlm/config.json").exists()


async def test_another_release_beside_the_first(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    hub.repositories["PaddlePaddle/PaddleOCR-VL-1.5"] = model("older")
    kit.environ["HPS_PIPELINE_NAME"] = "PaddleOCR-VL-1.5"
    await succeeds(kit)
    assert kit.env()["HPS_SDK_DIR"] == "./models/PaddleOCR-VL-1.5"
    assert set(json.loads((kit.root / "models.lock").read_text())) == {RELEASE, "PaddleOCR-VL-1.5"}


async def test_a_tuned_configuration_stays(kit: Kit) -> None:
    await succeeds(kit)
    file = models(kit) / "pipeline_config.yaml"
    file.write_text(file.read_text().replace("threshold: 0.3", "threshold: 0.25 # mine"))
    kit.environ["HPS_VLM_URL"] = "http://elsewhere:8080"
    await succeeds(kit)
    assert "threshold: 0.25 # mine" in file.read_text()
    assert "server_url: http://elsewhere:8080/v1" in file.read_text()


# --- downloads ---


async def test_a_broken_download_goes_on_by_itself(kit: Kit, hub: FakeHub) -> None:
    hub.cut["model.safetensors"] = (1, 1_000_000)
    await succeeds(kit)
    assert hub.ranges == ["model.safetensors bytes=1000000-"]


async def test_a_killed_run_goes_on_with_the_next(kit: Kit, hub: FakeHub) -> None:
    hub.stalled["model.safetensors"] = 2 * 2**20
    partial = kit.root / f"models/.incoming/{RELEASE}/vlm/model.safetensors"
    run = await kit.start()
    while not partial.exists() or partial.stat().st_size < 2 * 2**20:
        assert run.returncode is None
        await asyncio.sleep(0.01)
    run.kill()
    await run.communicate()
    assert not (kit.root / ".env").exists() and not models(kit).exists()
    hub.stalled.clear()
    await succeeds(kit)
    assert hub.ranges == ["model.safetensors bytes=2097152-"]


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
@pytest.mark.parametrize("path", ["config.json", "model.safetensors"])
async def test_wrong_content_is_refused(kit: Kit, hub: FakeHub, source: str, path: str) -> None:
    kit.environ["HPS_MODEL_SOURCE"] = source
    hub.wrong.add(path)
    await fails(kit, "wrong content", "checksum", "nothing was installed")
    hub.wrong.clear()
    await succeeds(kit)


async def test_other_content_than_the_first_is_refused(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    (models(kit) / "vlm/model.safetensors").unlink()
    hub.repositories[VLM]["model.safetensors"] = bytes(3_000_000)  # the same commit now says something else
    await fails(kit, "wrong content")
    kit.environ["HPS_MODEL_SOURCE"] = "modelscope"  # whose listing says so itself
    await fails(kit, "models.lock")


async def test_a_damaged_file_is_fetched_again(kit: Kit, hub: FakeHub) -> None:
    await succeeds(kit)
    (models(kit) / "vlm/model.safetensors").write_bytes(bytes(3_000_000))
    hub.requests.clear()
    await succeeds(kit)
    assert (models(kit) / "vlm/model.safetensors").read_bytes() == hub.repositories[VLM]["model.safetensors"]
    assert LAYOUT not in hub.requests


async def test_modelscope_has_what_hugging_face_gave(kit: Kit, hub: FakeHub) -> None:
    kit.environ["HPS_MODEL_SOURCE"] = "modelscope"
    await succeeds(kit)
    (models(kit) / "vlm/config.json").unlink()
    kit.environ["HPS_MODEL_SOURCE"] = "huggingface"
    await succeeds(kit)
    locked = json.loads((kit.root / "models.lock").read_text())[RELEASE]["vlm"]["files"]["config.json"]
    assert locked["revisions"] == {"huggingface": COMMIT, "modelscope": COMMIT}


async def test_the_other_hub_is_asked_when_one_is_away(kit: Kit) -> None:
    kit.environ["HPS_HUGGINGFACE_URL"] = "http://127.0.0.1:9"
    await succeeds(kit)
    locked = json.loads((kit.root / "models.lock").read_text())[RELEASE]["vlm"]["files"]["config.json"]
    assert locked["revisions"] == {"modelscope": COMMIT}


@pytest.mark.parametrize("name", [VLM, RELEASE, "vlm"])
async def test_weights_from_a_folder(kit: Kit, hub: FakeHub, tmp_path: Path, name: str) -> None:
    for folder, repository in ((name, VLM), ("PP-DocLayoutV3_safetensors", LAYOUT)):
        (tmp_path / "weights" / folder).mkdir(parents=True)
        for path, content in hub.repositories[repository].items():
            (tmp_path / "weights" / folder / path).write_bytes(content)
    kit.environ["HPS_MODEL_SOURCE"] = str(tmp_path / "weights")
    await succeeds(kit)
    assert not hub.requests
    assert (models(kit) / "vlm/model.safetensors").read_bytes() == hub.repositories[VLM]["model.safetensors"]


async def test_a_folder_that_is_none(kit: Kit) -> None:
    kit.environ["HPS_MODEL_SOURCE"] = "huggingfase"
    await fails(kit, "HPS_MODEL_SOURCE is huggingfase")


# --- what stands in the way ---


async def test_an_unknown_release(kit: Kit, hub: FakeHub) -> None:
    kit.environ["HPS_PIPELINE_NAME"] = "PaddleOCR-VL-9"
    await fails(kit, "HPS_PIPELINE_NAME", "'PaddleOCR-VL-1.6'")
    assert not hub.requests


async def test_a_misspelt_setting(kit: Kit) -> None:
    kit.environ["HPS_PIPELINE_NMAE"] = RELEASE
    await fails(kit, "unknown setting: HPS_PIPELINE_NMAE")


async def test_a_release_that_the_hubs_do_not_have(kit: Kit, hub: FakeHub) -> None:
    del hub.repositories[VLM]
    await fails(kit, VLM, "401", "404")


async def test_a_missing_vlm_name(kit: Kit) -> None:
    await succeeds(kit)
    file = models(kit) / "pipeline_config.yaml"
    file.write_text(file.read_text().replace(f"model_name: {RELEASE}-0.9B", "model_name: null"))
    await fails(kit, "names no VLM at SubModules.VLRecognition.model_name")


async def test_no_disk(kit: Kit, hub: FakeHub) -> None:
    hub.stated["model.safetensors"] = 10**18
    await fails(kit, "free disk for models: ", "GiB; needed: ")


async def test_all_problems_of_a_host_are_said_at_once(kit: Kit) -> None:
    info = {"ServerVersion": "18.09.1", "Architecture": "aarch64", "MemTotal": 8 * 2**30}
    kit.environ |= {"HPS_VLM_IMAGE": "vllm/vllm-openai:v0.33.0", "FAKE_DOCKER_INFO": json.dumps(info)}
    kit.gpus("0, GPU-1, Tesla T4, 15360, 7.5, Exclusive_Process, 470.82.01")
    await fails(
        kit,
        "processor: aarch64; needed: x86-64",
        "Docker: 18.09.1; needed: 20.10",
        "memory: 8.0 GiB; needed: 18.0 GiB",
        "compute capability 7.5; needed: 8.0",
        "compute mode Exclusive_Process",
        "driver: 470.82.01; needed: 580 for vllm/vllm-openai:v0.33.0",
        "HPS_VLM_IMAGE=vllm/vllm-openai:v0.33.0-cu129",
    )


async def test_no_gpu(kit: Kit) -> None:
    kit.gpus()
    await fails(kit, "GPU: none seen by nvidia-smi")


async def test_gpus_are_asked_for_in_a_container_where_the_host_has_no_nvidia_smi(kit: Kit) -> None:
    (kit.host / "bin/nvidia-smi").unlink()
    await fails(kit, "GPU: none seen by nvidia-smi (nvidia-smi is not installed)")
    image = {PREPARE_IMAGE: {"id": "sha256:0", "digest": ""}}  # what prepare.sh itself runs in
    (kit.host / "docker/images.json").write_text(json.dumps(image))
    await fails(kit, "could not select device driver")
    kit.environ["FAKE_GPUS"] = H200
    await succeeds(kit)


async def test_an_image_that_cannot_be_pulled(kit: Kit) -> None:
    kit.environ["FAKE_REGISTRY"] = "http://127.0.0.1:9"
    await fails(kit, "docker pull", "failed")
    assert not (kit.root / ".env").exists()


# --- images ---


async def test_a_change_of_the_kit_builds_again_on_the_same_bases(kit: Kit) -> None:
    await succeeds(kit)
    before, bases = kit.env(), json.loads((kit.root / "images.lock").read_text())["bases"]
    (kit.root / "gateway/routes.py").write_text("# changed\n")
    kit.environ["FAKE_BUILD"] = "other"
    kit.calls()
    await succeeds(kit)
    assert kit.env()["HPS_GATEWAY_IMAGE"] != before["HPS_GATEWAY_IMAGE"]
    assert json.loads((kit.root / "images.lock").read_text())["bases"] == bases
    assert not [call for call in kit.calls() if call.startswith("pull")]


async def test_an_image_of_the_users_own_is_pulled_by_digest(kit: Kit) -> None:
    kit.environ["HPS_GATEWAY_IMAGE"] = "registry.example/gateway:7"
    await succeeds(kit)
    lock = json.loads((kit.root / "images.lock").read_text())["images"]["HPS_GATEWAY_IMAGE"]
    assert lock["inputs"].startswith("registry.example/gateway:7@sha256:")
    (kit.host / "docker/images.json").unlink()
    kit.calls()
    await succeeds(kit)
    assert f"pull {lock['inputs']}" in kit.calls()


async def test_without_a_gpu(kit: Kit, hub: FakeHub) -> None:
    kit.gpus()
    kit.environ["HPS_RUNTIME"] = "cpu"
    await succeeds(kit)
    assert not hub.requests
    assert "HPS_PIPELINE_CPU_IMAGE" in kit.env()


async def test_several_gpus(kit: Kit) -> None:
    kit.gpus(*(f"{n}, GPU-{n}, NVIDIA H200, 143771, 9.0, Default, 580.95.05" for n in range(2)))
    kit.environ["HPS_DEVICE_IDS"] = "0,1"
    await succeeds(kit)
    override = yaml.safe_load((kit.root / "compose.multi-gpu.yaml").read_text().replace("!override", ""))
    assert set(override["services"]) == {"paddleocr-vl-pipeline", "paddleocr-vlm-server", "paddleocr-vlm-server-2"}
