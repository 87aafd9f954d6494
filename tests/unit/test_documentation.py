"""What the documents and configuration files refer to is there."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {"compose.multi-gpu.yaml", "benchmarks/results.jsonl"}  # by ./prepare.sh; by make bench
# Links of Markdown, and files of the kit that any text names.
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
NAMED = re.compile(
    r"(?<![\w/.])((?:compose\.[\w-]+|docs/[\w/-]+|(?:benchmarks|gateway|src/hps|proxy|vlm)/[\w/-]+)\.\w{2,5})\b"
)


def documents() -> list[str]:
    patterns = ["*.md", "*.yaml", "*.cfg", "*.sh", "*Dockerfile", "Makefile"]
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and not name.startswith("tests/")]


def references(document: str) -> Iterator[Path]:
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in LINK.findall(text):
        yield (ROOT / document).parent / target
    for name in NAMED.findall(text):
        if name not in GENERATED:
            yield ROOT / name


@pytest.mark.parametrize("document", documents())
def test_what_a_document_names_exists(document: str) -> None:
    assert not [str(path.relative_to(ROOT)) for path in references(document) if not path.exists()]
