"""What the container is told, and the command lines that come of it."""

from pathlib import Path

import pytest

from hps.vlm_server import command, environment, sizing, supervision
from hps.vlm_server.command import ServerPlan
from hps.vlm_server.environment import Unusable

CONFIG = "SubModules:\n  VLRecognition:\n    model_name: PaddleOCR-VL-1.6-0.9B\n"


def environ(tmp_path: Path, **changes: str) -> dict[str, str]:
    config = tmp_path / "pipeline_config.yaml"
    config.write_text(CONFIG)
    return {"HPS_PIPELINE_CONFIG": str(config)} | changes


def plan(**changes: object) -> ServerPlan:
    return ServerPlan(**({"model": "/m", "name": "n", "version": (0, 33), "kv_cache_gib": 8} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gib", "mps", "servers"), [(16, False, 1), (24, False, 1), (40, False, 2), (48, True, 2), (80, True, 4)]
)
def test_servers_for_a_gpu(gib: float, mps: bool, servers: int) -> None:
    assert sizing.replicas(gib, mps=mps) == servers


def test_an_h200_takes_four_servers_with_mps_and_two_without() -> None:
    assert (sizing.replicas(139, mps=True), sizing.replicas(139, mps=False)) == (4, 2)


@pytest.mark.parametrize("gib", [12, 16, 24, 32, 40, 48, 80, 96, 139, 180])
@pytest.mark.parametrize("mps", [False, True])
def test_all_servers_and_the_layout_model_fit(gib: float, mps: bool) -> None:
    servers = sizing.replicas(gib, mps=mps)
    kv_cache = sizing.kv_cache_gib(gib, servers)
    assert kv_cache >= 1
    if gib >= 24:
        assert servers * (kv_cache + 8) + 8 <= gib


@pytest.mark.parametrize("gib", [24, 32, 40, 48, 80, 96, 139, 180])
@pytest.mark.parametrize("mps", [False, True])
def test_a_server_started_again_beside_the_others_finds_the_memory_that_vllm_asks_for(gib: float, mps: bool) -> None:
    servers = sizing.replicas(gib, mps=mps)
    kv_cache = sizing.kv_cache_gib(gib, servers)
    taken_by_others = (servers - 1) * (kv_cache + 8)
    assert 0 < sizing.memory_share(gib, kv_cache) * gib <= gib - taken_by_others


def test_the_share_of_memory_is_said_to_vllm_where_there_is_a_gpu() -> None:
    line = command.serve(plan(memory_share=0.12), 8080)
    assert line[line.index("--gpu-memory-utilization") + 1] == "0.12"
    assert "--gpu-memory-utilization" not in command.serve(plan(), 8080)


def test_the_name_comes_from_the_pipelines_configuration(tmp_path: Path) -> None:
    assert environment.read(environ(tmp_path)).server.name == "PaddleOCR-VL-1.6-0.9B"
    assert environment.read(environ(tmp_path, HPS_VLM_MODEL_NAME="other")).server.name == "other"


@pytest.mark.parametrize("content", ["", "SubModules: 3", "a: [", "SubModules:\n  VLRecognition:\n    model_name: 5\n"])
def test_a_configuration_without_the_name_is_unusable(tmp_path: Path, content: str) -> None:
    variables = environ(tmp_path)
    Path(variables["HPS_PIPELINE_CONFIG"]).write_text(content)
    with pytest.raises(Unusable, match="name"):
        environment.read(variables)


def test_an_unprepared_release_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"\./prepare\.sh"):
        environment.read({"HPS_PIPELINE_CONFIG": str(tmp_path / "none.yaml")})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPS_VLM_REPLICAS", "0"),
        ("HPS_VLM_REPLICAS", "many"),
        ("HPS_VLM_MPS", "perhaps"),
        ("HPS_VLM_PORT", "http"),
        ("HPS_VLM_CONFIG", "/nowhere.yaml"),
    ],
)
def test_what_cannot_be_understood_names_its_variable(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(Unusable, match=name):
        environment.read(environ(tmp_path, **{name: value}))


def test_servers_listen_on_consecutive_ports(tmp_path: Path) -> None:
    found = environment.read(environ(tmp_path, HPS_VLM_REPLICAS="3", HPS_VLM_PORT="9000"))
    assert list(found.ports) == [9000, 9001, 9002]
    lines = [command.serve(found.server, port) for port in found.ports]
    assert [line[line.index("--port") + 1] for line in lines] == ["9000", "9001", "9002"]


def test_flags_for_this_model() -> None:
    line = command.serve(plan(), 8080)
    assert line[:3] == ["vllm", "serve", "/m"]
    assert "--no-enable-prefix-caching" in line
    assert "--trust-remote-code" not in line
    assert line[line.index("--kv-cache-memory-bytes") + 1] == str(8 << 30)
    assert line[line.index("--served-model-name") + 1] == "n"


@pytest.mark.parametrize(("version", "is_there"), [((0, 30), False), ((0, 31), True), ((1, 0), True), ((0, 0), False)])
def test_pixel_budgets_are_trusted_where_the_release_asks(version: tuple[int, int], is_there: bool) -> None:
    assert ("--trust-request-mm-kwargs" in command.serve(plan(version=version), 8080)) is is_there


def test_a_file_overrides_ours_and_extra_arguments_come_last(tmp_path: Path) -> None:
    file = tmp_path / "flags.yaml"
    file.write_text("max_num_seqs: 64\nenable-prefix-caching: true\nswap-space: 2\n")
    variables = environ(tmp_path, HPS_VLM_CONFIG=str(file), HPS_VLM_EXTRA_ARGS="--max-num-seqs 32 --note 'a b'")
    line = command.serve(environment.read(variables).server, 8080)
    assert line[line.index("--max-num-seqs") + 1] == "64"
    assert "--enable-prefix-caching" in line and "--no-enable-prefix-caching" not in line
    assert line[line.index("--swap-space") + 1] == "2"
    assert line[-4:] == ["--max-num-seqs", "32", "--note", "a b"]


@pytest.mark.parametrize("extra", [("--api-key", "secret"), ("--api-key=secret",)])
def test_keys_are_not_logged(extra: tuple[str, ...]) -> None:
    assert "secret" not in command.shown(command.serve(plan(extra=extra), 8080))
    assert "hidden" not in command.shown(command.serve(plan(api_key="hidden"), 8080))


def test_mps_runs_before_the_servers(tmp_path: Path) -> None:
    found = environment.read(environ(tmp_path, HPS_VLM_MPS="true", HPS_VLM_REPLICAS="2"))
    written = supervision.configuration(found, tmp_path)
    assert written.index("program:mps") < written.index("program:vllm-8080") < written.index("program:watch")
    variables = supervision.environment(found, tmp_path, {"HOME": "/own"})
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path / "mps")
    assert variables["HOME"] == "/own"
