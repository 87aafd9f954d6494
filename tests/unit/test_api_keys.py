"""The file of API keys: written, read, changed under a reader, and compared in constant time."""

import itertools
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hps import api_keys, cli
from hps.api_keys import ApiKeys, KeysError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_key_is_shown_once_and_kept_as_its_hash(file: Path) -> None:
    key = api_keys.add(file, "someone")
    assert re.fullmatch(r"hps_[A-Za-z0-9_-]{43}", key)
    assert key not in file.read_text()
    assert ApiKeys(file).name_of(key) == "someone"
    assert file.stat().st_mode & 0o777 == 0o600


def test_keys_differ(file: Path) -> None:
    keys = [api_keys.add(file, f"n{number}") for number in range(5)]
    assert len(set(keys)) == 5
    assert [ApiKeys(file).name_of(key) for key in keys] == [f"n{number}" for number in range(5)]


def test_removing_leaves_the_others_and_the_comments(file: Path) -> None:
    file.write_text("# keys of the office\n")
    first, second = api_keys.add(file, "first"), api_keys.add(file, "second")
    api_keys.remove(file, "first")
    assert api_keys.names(file) == ["second"]
    assert file.read_text().startswith("# keys of the office\n")
    assert (ApiKeys(file).name_of(first), ApiKeys(file).name_of(second)) == (None, "second")


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "x" * 65, "né", "#x"])
def test_names_that_would_break_the_file_or_a_log(file: Path, name: str) -> None:
    with pytest.raises(KeysError):
        api_keys.add(file, name)
    assert not file.exists()


def test_a_name_is_given_once_and_only_a_known_one_is_removed(file: Path) -> None:
    api_keys.add(file, "someone")
    with pytest.raises(KeysError, match="remove it first"):
        api_keys.add(file, "someone")
    with pytest.raises(KeysError, match="no key named other"):
        api_keys.remove(file, "other")


@pytest.mark.parametrize("text", ["someone", "someone 00", "a b c", f"a {'0' * 64}\na {'1' * 64}", f"a {'G' * 64}"])
def test_a_broken_file_is_refused_with_the_line_and_without_its_content(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(KeysError, match=r"line \d") as refused:
        ApiKeys(file)
    assert "0000" not in str(refused.value)


def test_a_change_holds_after_a_second(file: Path) -> None:
    clock = Clock()
    first = api_keys.add(file, "first")
    keys = ApiKeys(file, clock=clock)
    second = api_keys.add(file, "second")
    api_keys.remove(file, "first")
    assert (keys.name_of(first), keys.name_of(second)) == ("first", None)
    clock.now += api_keys.RECHECK_S
    assert (keys.name_of(first), keys.name_of(second)) == (None, "second")


@pytest.mark.parametrize("broken", [None, b"nonsense", b"\xff"])
def test_a_file_that_breaks_leaves_the_keys_as_they_were_until_it_is_whole(file: Path, broken: bytes | None) -> None:
    clock = Clock()
    key = api_keys.add(file, "someone")
    good = file.read_bytes()
    keys = ApiKeys(file, clock=clock)
    file.unlink() if broken is None else file.write_bytes(broken)
    clock.now += api_keys.RECHECK_S
    assert keys.name_of(key) == "someone"
    file.write_bytes(good)
    other = api_keys.add(file, "other")
    clock.now += api_keys.RECHECK_S
    assert keys.name_of(other) == "other"


def test_an_empty_file_lets_nobody_in(file: Path) -> None:
    file.write_text("")
    assert ApiKeys(file).name_of("") is None


def test_the_time_of_a_comparison_does_not_depend_on_what_is_right(file: Path) -> None:
    """Prefixes from nothing to all but the last character, in turn, so that the machine's moods hit all alike."""
    key = api_keys.add(file, "someone")
    for number in range(50):
        api_keys.add(file, f"other{number}")
    keys = ApiKeys(file)
    guesses = [key[:right] + "~" * (len(key) - right) for right in (0, 12, 24, 36, len(key) - 1)]
    seconds: dict[str, list[float]] = {guess: [] for guess in guesses}
    for guess in itertools.chain.from_iterable(itertools.repeat(guesses, 400)):
        started = time.perf_counter()
        assert keys.name_of(guess) is None
        seconds[guess].append(time.perf_counter() - started)
    medians = [statistics.median(times) for times in seconds.values()]
    assert max(medians) < 1.25 * min(medians)


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "add", "someone", "--file", str(file)]) == 0
    shown = capsys.readouterr()
    assert ApiKeys(file).name_of(shown.out.strip()) == "someone"
    assert cli.main(["keys", "list", "--file", str(file)]) == 0
    assert capsys.readouterr().out == "someone\n"
    assert cli.main(["keys", "remove", "someone", "--file", str(file)]) == 0
    assert cli.main(["keys", "remove", "someone", "--file", str(file)]) == 2
    assert "no key named someone" in capsys.readouterr().err
    assert cli.main(["keys", "add", "--file", str(file)]) == 2


def test_two_writers_at_once_lose_nothing(file: Path) -> None:
    program = "import sys; from pathlib import Path; from hps import api_keys\n"
    program += "for i in range(20): api_keys.add(Path(sys.argv[1]), f'{sys.argv[2]}{i}')"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(file), name]) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(api_keys.names(file)) == 40
