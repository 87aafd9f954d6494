#!/usr/bin/env python3
"""Make every document that this repository ships, and samples/manifest.json, which says what is known about each.

    python samples/make_samples.py            writes samples/ and tests/documents/
    python samples/make_samples.py --check    writes nothing; exit code 1 if a file would change

A rerun gives identical bytes: seeds, dates and ids are fixed. That holds for the versions below, because another
version of an encoder may pack the same picture differently. They are not dependencies of the product:

    python3.11 -m venv samples-venv
    samples-venv/bin/pip install reportlab==5.1.0 pikepdf==10.18.0 pypdfium2==5.15.2 pillow==13.0.0 numpy==1.26.4
    apt-get install fonts-liberation2=2.1.5-1 fonts-droid-fallback=1:6.0.1r16-1.1
"""

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

from making.awkward import awkward
from making.document import Document
from making.drawing import register_fonts
from making.showcase import showcase

VERSIONS = {"reportlab": "5.1.0", "pikepdf": "10.18.0", "pypdfium2": "5.15.2", "pillow": "13.0.0", "numpy": "1.26.4"}
MAX_FILE_BYTES = 400_000
MAX_TOTAL_BYTES = 2_500_000
ROOT = Path(__file__).resolve().parent.parent


def manifest(documents: list[Document]) -> bytes:
    facts = {
        "made_by": "samples/make_samples.py",
        "max_file_bytes": MAX_FILE_BYTES,
        "max_total_bytes": MAX_TOTAL_BYTES,
        "documents": [document.entry() for document in documents],
    }
    return (json.dumps(facts, ensure_ascii=False, indent=1) + "\n").encode()


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the sample documents.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file would change")
    check = parser.parse_args().check
    for package, wanted in VERSIONS.items():
        if version(package) != wanted:
            print(f"note: {package} is {version(package)}, not {wanted}: bytes may differ", file=sys.stderr)

    register_fonts()
    documents = [*showcase(), *awkward()]
    for document in documents:
        if len(document.data) > MAX_FILE_BYTES:
            raise SystemExit(f"{document.path} has {len(document.data)} bytes, over {MAX_FILE_BYTES}")
    if (total := sum(len(document.data) for document in documents)) > MAX_TOTAL_BYTES:
        raise SystemExit(f"all documents together have {total} bytes, over {MAX_TOTAL_BYTES}")

    wanted = {document.path: document.data for document in documents}
    wanted["samples/manifest.json"] = manifest(documents)
    changed = [path for path, data in wanted.items() if not _holds(ROOT / path, data)]
    for path in changed:
        print(f"{'would change' if check else 'written'}: {path} ({len(wanted[path])} bytes)")
        if not check:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_bytes(wanted[path])
    print(f"{len(documents)} documents, {total} bytes, {len(changed)} changed")
    return 1 if check and changed else 0


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


if __name__ == "__main__":
    raise SystemExit(main())
