"""`hps parse` as a user runs it, through the real chain with fixed boxes: a text over a picture on every page."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from hps.ports import free_port
from tests.e2e import chain as chains
from tests.e2e.chain import ROOT, Chain

pytestmark = pytest.mark.e2e

TEXT = "As it stands on the page."
BOXES = [[22, 0.9, 0.05, 0.05, 0.95, 0.45, 0], [14, 0.9, 0.05, 0.55, 0.95, 0.95, 1]]  # text, image
DOCUMENTS = ROOT / "tests/documents"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    with chains.running(folder, chains.fixed_layout(folder, BOXES), vlm=chains.stub_vlm(text=TEXT)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents of several kinds, one of them in a folder and with spaces in its name, one damaged, one no document."""
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for name, copy in {
        "note.webp": "note.webp",
        "fax-3-pages.tif": "deep/fax (3 pages).tif",
        "numbered-12-pages.pdf": "twelve.pdf",
        "truncated.jpg": "cut.jpg",
    }.items():
        shutil.copy(DOCUMENTS / name, folder / copy)
    (folder / "readme.txt").write_text("not a document")
    return folder


def parse(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hps", "parse", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def check_document(markdown: Path, pages: int) -> None:
    """Every page's text, and every link to a picture that is there."""
    text = markdown.read_text("utf-8")
    assert text.count(TEXT) == pages
    links = re.findall(r'src="([^"]+)"', text)
    assert len(set(links)) == pages
    assert all((markdown.parent / unquote(link)).stat().st_size > 100 for link in links)
    record = json.loads(markdown.with_suffix(".json").read_text("utf-8"))
    assert len(record["result"]["layoutParsingResults"]) == pages


def test_a_folder_is_parsed_and_parsed_again(chain: Chain, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = parse(folder, "-o", out, "--url", chain.url)
    assert first.returncode == 1
    assert first.stdout == ""
    failed, summary = first.stderr.splitlines()
    assert failed.startswith(f"failed: {folder / 'cut.jpg'}: 422: ")
    assert summary == "3 parsed, 0 done before, 1 failed"
    check_document(out / "note.md", 1)
    check_document(out / "deep/fax (3 pages).md", 3)
    check_document(out / "twelve.md", 12)
    assert not list(out.glob("cut*"))

    (folder / "cut.jpg").unlink()
    shutil.copy(DOCUMENTS / "transparent-text.png", folder / "note.webp")
    second = parse(folder, "-o", out, "--url", chain.url)
    assert (second.returncode, second.stderr) == (0, "1 parsed, 2 done before, 0 failed\n")


def test_files_go_to_standard_output_in_order(chain: Chain, folder: Path) -> None:
    done = parse(folder / "twelve.pdf", folder / "note.webp", "--url", chain.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(TEXT) == 13
    assert done.stdout.index("twelve_images") < done.stdout.index("note_images")


def test_options_reach_the_service(chain: Chain, folder: Path, tmp_path: Path) -> None:
    arguments = ("-o", tmp_path / "out", "--url", chain.url)
    assert parse(folder / "note.webp", *arguments, "--option", "topP=0.5", "--option", "logId=mine").returncode == 0
    done = parse(folder / "note.webp", *arguments, "--option", "topP=2")
    assert done.returncode == 1
    assert "422: " in done.stderr
    assert "topP" in done.stderr


def test_a_terminal_shows_the_progress(chain: Chain, folder: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-m", "hps", "parse", folder / "note.webp", "-o", tmp_path, "--url", chain.url]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        shown = terminal.read(65536).decode()
    assert (done.returncode, done.stdout) == (0, b"")
    assert "1/1" in shown


def test_a_service_that_is_away_is_said_at_once(folder: Path, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    done = parse(folder, "-o", tmp_path / "out", "--url", url)
    assert time.monotonic() - began < 10
    assert done.returncode == 1
    assert done.stderr == f"hps: cannot reach the service at {url} (ConnectError); is it running? (hps up, or --url)\n"
    assert not (tmp_path / "out").exists()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    done = parse(tmp_path / "missing.pdf")
    assert (done.returncode, done.stderr) == (2, f"hps: no such file or folder: {tmp_path / 'missing.pdf'}\n")
    done = parse(tmp_path)
    assert (done.returncode, done.stderr) == (2, "hps: no documents found\n")
