"""What config.pbtxt says holds, settings go over it, in a copy."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from hps.settings import Settings
from hps.triton.repository import RepositoryError, gpu_present, render

SHIPPED = Path(__file__).parents[3] / "model_repo"
CPU, GPU = model_config_pb2.ModelInstanceGroup.KIND_CPU, model_config_pb2.ModelInstanceGroup.KIND_GPU


def rendered(path: Path) -> Any:
    return text_format.Parse((path / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def model(repository: Path, name: str, config: str) -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.py").write_text("# a model\n")
    (repository / name / "config.pbtxt").write_text(config)
    return repository


def test_without_settings_the_shipped_configuration_is_kept(tmp_path: Path) -> None:
    names = render(SHIPPED, tmp_path / "models", Settings(), gpu=False)
    assert names == ["layout-detection", "layout-parsing", "restructure-pages"]
    for name in names:
        expected = rendered(SHIPPED / name)
        for group in expected.instance_group:
            group.kind = CPU
        assert rendered(tmp_path / "models" / name) == expected
        assert (tmp_path / "models" / name / "1" / "model.py").exists()


def test_the_public_models_keep_the_official_tensor_contract() -> None:
    parsing, restructuring = rendered(SHIPPED / "layout-parsing"), rendered(SHIPPED / "restructure-pages")
    for config, largest, dims in ((parsing, 8, [-1]), (restructuring, 1, [1])):
        assert config.max_batch_size == largest
        for tensors, name in ((config.input, "input"), (config.output, "output")):
            (tensor,) = tensors
            assert (tensor.name, list(tensor.dims)) == (name, dims)
            assert tensor.data_type == model_config_pb2.TYPE_STRING
        assert not config.HasField("dynamic_batching")
        assert not config.model_transaction_policy.decoupled


def test_settings_override_instances_and_batch_size(tmp_path: Path) -> None:
    values = Settings(coordinators=3, layout_instances=2, layout_batch_size=6)
    render(SHIPPED, tmp_path, values, gpu=False)
    assert [group.count for group in rendered(tmp_path / "layout-parsing").instance_group] == [3]
    detection = rendered(tmp_path / "layout-detection")
    assert [group.count for group in detection.instance_group] == [2]
    assert detection.max_batch_size == 6
    assert list(detection.dynamic_batching.preferred_batch_size) == [4, 6]
    assert detection.dynamic_batching.max_queue_delay_microseconds == 100


def test_what_a_user_writes_holds(tmp_path: Path) -> None:
    source = model(
        tmp_path / "source",
        "layout-parsing",
        'name: "layout-parsing" backend: "python" max_batch_size: 4 # mine\n'
        "instance_group [ { count: 5 kind: KIND_GPU gpus: [ 1 ] } ]",
    )
    render(source, tmp_path / "models", Settings(), gpu=True)
    config = rendered(tmp_path / "models" / "layout-parsing")
    assert (config.max_batch_size, config.instance_group[0].count) == (4, 5)
    assert (config.instance_group[0].kind, list(config.instance_group[0].gpus)) == (GPU, [1])


def test_a_setting_takes_the_first_of_several_groups(tmp_path: Path) -> None:
    source = model(
        tmp_path / "source",
        "layout-detection",
        'name: "layout-detection" '
        "instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] }, { count: 4 kind: KIND_CPU } ]",
    )
    render(source, tmp_path / "models", Settings(layout_instances=2), gpu=True)
    (group,) = rendered(tmp_path / "models" / "layout-detection").instance_group
    assert (group.count, group.kind, list(group.gpus)) == (2, GPU, [0])


@pytest.mark.parametrize(("gpu", "kind"), [(True, GPU), (False, CPU)])
def test_the_layout_model_runs_on_a_gpu_where_there_is_one(tmp_path: Path, gpu: bool, kind: int) -> None:
    render(SHIPPED, tmp_path, Settings(), gpu=gpu)
    assert rendered(tmp_path / "layout-detection").instance_group[0].kind == kind
    assert rendered(tmp_path / "layout-parsing").instance_group[0].kind == CPU


def test_rendering_again_starts_anew(tmp_path: Path) -> None:
    render(SHIPPED, tmp_path, Settings(coordinators=3), gpu=False)
    (tmp_path / "stale").mkdir()
    render(SHIPPED, tmp_path, Settings(), gpu=False)
    assert not (tmp_path / "stale").exists()
    assert rendered(tmp_path / "layout-parsing").instance_group[0].count == 1


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="no model in"):
        render(tmp_path, tmp_path / "models", Settings(), gpu=False)


def test_an_unreadable_configuration_is_named_with_its_line(tmp_path: Path) -> None:
    source = model(tmp_path / "source", "broken", 'name: "broken"\nmax_batch_size: eight\n')
    with pytest.raises(RepositoryError, match=r"broken/config\.pbtxt: 2:"):
        render(source, tmp_path / "models", Settings(), gpu=False)


def test_a_gpu_is_a_device_file(tmp_path: Path) -> None:
    assert not gpu_present(tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert gpu_present(tmp_path)
