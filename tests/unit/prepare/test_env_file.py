from pathlib import Path

import pytest

from hps.prepare import env_file
from hps.prepare.problems import PrepareError
from hps.settings_reference import ENV_COMPOSE_FILE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "A=1\n"),
        ("B=2", "B=2\nA=1\n"),
        ("A=0\nB=2\n", "A=1\nB=2\n"),
        ("# what A is\n#A=0\nB=2\n", "# what A is\nA=1\nB=2\n"),
        ("#A=0\nA=7\n", "#A=0\nA=1\n"),  # where it is set counts before where it stands commented out
        ("A=5\nA=6\n", "A=5\nA=1\n"),  # the last one is the one that Compose takes
        ("export A = 5\n", "A=1\n"),
        ("AA=5\nBA=6\n", "AA=5\nBA=6\nA=1\n"),
        ("A=0\r\nB=2\r\n", "A=1\r\nB=2\r\n"),
        ("B=2\r\n", "B=2\r\nA=1\r\n"),
    ],
)
def test_one_line_changes(text: str, expected: str) -> None:
    assert env_file.edited(text, {"A": "1"}) == expected
    assert env_file.edited(expected, {"A": "1"}) == expected


@pytest.mark.parametrize("value", ["plain", "a b", "#x", "$HOME", "http://h:1/v1?a=b&c", "back\\slash", "", "\\1"])
def test_values_come_back_as_they_were(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    env_file.write(file, env_file.edited("OTHER=1\n", {"A": value}))
    assert env_file.read(file).get("A", "") == value


@pytest.mark.parametrize("text", ["", "A=1", "A=1\r\nHPS_DEVICE_IDS=0,1\r\n", "#COMPOSE_FILE=x\n"])
def test_a_file_written_by_hand_gets_the_line_that_chooses_compose_files(text: str) -> None:
    whole = env_file.choosing_compose_files(text)
    assert whole.startswith(text)
    added = whole.removeprefix(text).strip().splitlines()
    assert added == ENV_COMPOSE_FILE.splitlines()
    assert env_file.choosing_compose_files(whole) == whole
    assert ("\r\n" in whole) == ("\r\n" in text) and whole.count("\r\n") in (0, whole.count("\n"))


def test_a_choice_of_compose_files_of_ones_own_stays() -> None:
    text = "COMPOSE_FILE=compose.yaml:mine.yaml\nHPS_DEVICE_IDS=0,1\n"
    assert env_file.choosing_compose_files(text) == text


def test_a_choice_above_what_it_goes_by_is_refused() -> None:
    with pytest.raises(PrepareError, match="HPS_DEVICE_IDS stands below COMPOSE_FILE"):
        env_file.choosing_compose_files(f"{ENV_COMPOSE_FILE}HPS_DEVICE_IDS=0,1\n")


@pytest.mark.parametrize("value", ["it's", "two\nlines"])
def test_values_that_cannot_be_written(value: str) -> None:
    with pytest.raises(PrepareError):
        env_file.edited("", {"A": value})


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    assert env_file.write(file, "A=1\n")
    file.chmod(0o600)
    before = file.stat()
    assert not env_file.write(file, "A=1\n")
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert env_file.write(file, "A=2\n")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("A=2\n", 0o600)
    with pytest.raises(UnicodeEncodeError):
        env_file.write(file, "A=\ud800\n")
    assert file.read_text() == "A=2\n"
    assert [each.name for each in tmp_path.iterdir()] == [".env"]
