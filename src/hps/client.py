"""`hps parse`: documents in, Markdown files out, through the service's HTTP API like any other client."""

import asyncio
import base64
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tqdm import tqdm

SUFFIXES = {".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"}
MAX_TRIES = 5


class ParseFailed(Exception):
    """One document was refused; the message is the service's own."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document on disk and the base name of its results."""

    path: Path
    name: str

    def result_files(self, folder: Path) -> tuple[Path, Path, Path]:
        return folder / f"{self.name}.md", folder / f"{self.name}.json", folder / f"{self.name}_images"


def find_sources(paths: Iterable[Path]) -> list[Source]:
    """Files as given, folders searched for documents; results keep a folder's structure.

    Two documents that would share a result name (a.pdf, a.png) keep their suffix in it. Raises FileNotFoundError.
    """
    found: list[tuple[Path, Path]] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            found += [(p, p.relative_to(path)) for p in inside]
        elif path.is_file():
            found.append((path, Path(path.name)))
        else:
            raise FileNotFoundError(f"no such file or folder: {path}")
    stems = Counter(str(relative.with_suffix("")) for _, relative in found)
    names = [str(r if stems[str(r.with_suffix(""))] > 1 else r.with_suffix("")) for _, r in found]
    taken: Counter[str] = Counter()
    sources = []
    for (path, _), name in zip(found, names, strict=True):
        taken[name] += 1
        sources.append(Source(path, name if taken[name] == 1 else f"{name}-{taken[name]}"))
    return sources


def fingerprint(data: bytes, options: dict[str, Any]) -> str:
    """What a result was made from: the same file with the same options is not parsed again."""
    return hashlib.sha256(hashlib.sha256(data).digest() + json.dumps(options, sort_keys=True).encode()).hexdigest()


async def parse_one(http: httpx.AsyncClient, data: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """The `result` of /layout-parsing. Waits and tries again while the service is full or away; raises ParseFailed."""
    file_type = 0 if b"%PDF" in data[:1024] else 1
    body = {"file": base64.b64encode(data).decode(), "fileType": file_type, "visualize": False} | options
    for attempt in range(1, MAX_TRIES + 1):
        wait_s = min(2.0**attempt, 30.0)
        try:
            response = await http.post("/layout-parsing", json=body)
        except httpx.TransportError as error:
            problem = f"cannot reach the service ({type(error).__name__})"
        else:
            try:
                envelope = response.json()
            except ValueError:
                envelope = {"errorMsg": f"status {response.status_code} without an envelope"}
            if response.status_code == 200:
                return dict(envelope["result"])
            problem = f"{response.status_code}: {envelope.get('errorMsg', 'no message')}"
            if response.status_code != 503:
                raise ParseFailed(problem)
            wait_s = float(response.headers.get("Retry-After", wait_s))
        if attempt < MAX_TRIES:
            await asyncio.sleep(wait_s)
    raise ParseFailed(problem)


def markdown_of(result: dict[str, Any], image_folder: str) -> tuple[str, dict[str, bytes]]:
    """The document's Markdown and its images by path. Pages may use equal names, so each gets its page's prefix."""
    texts, images = [], {}
    for number, page in enumerate(result["layoutParsingResults"], start=1):
        text = page["markdown"]["text"]
        renamed = {
            path: f"{image_folder}/page{number}_{Path(path).name}" for path in page["markdown"].get("images") or {}
        }
        if renamed:
            text = _renamed(text, renamed)
        for path, content in (page["markdown"].get("images") or {}).items():
            images[renamed[path]] = base64.b64decode(content)
        texts.append(text)
    return "\n\n".join(texts).strip() + "\n", images


def _renamed(text: str, names: dict[str, str]) -> str:
    """One pass, longest name first: a name that begins like another is not cut in half."""
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(pattern, lambda match: names[match.group()], text)


def write_result(source: Source, folder: Path, key: str, result: dict[str, Any]) -> None:
    """Markdown and images first; the .json last, because its key marks the document as done."""
    markdown_file, json_file, image_folder = source.result_files(folder)
    markdown_file.parent.mkdir(parents=True, exist_ok=True)
    text, images = markdown_of(result, image_folder.name)
    for relative, content in images.items():
        target = markdown_file.parent / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    markdown_file.write_text(text, encoding="utf-8")
    for page in result["layoutParsingResults"]:
        page["markdown"].pop("images", None)
    partial = json_file.with_name(json_file.name + ".part")
    partial.write_text(json.dumps({"fingerprint": key, "result": result}, ensure_ascii=False, indent=1), "utf-8")
    partial.replace(json_file)


def is_done(source: Source, folder: Path, key: str) -> bool:
    markdown_file, json_file, _ = source.result_files(folder)
    if not (markdown_file.exists() and json_file.exists()):
        return False
    try:
        return bool(json.loads(json_file.read_text("utf-8")).get("fingerprint") == key)
    except (ValueError, AttributeError):
        return False


async def parse_all(
    url: str, sources: Sequence[Source], folder: Path | None, options: dict[str, Any], jobs: int
) -> dict[str, str]:
    """Parses `jobs` documents at once; returns path → problem of those that failed.

    With a folder, writes the results there and skips what is done; without, prints each Markdown to standard output.
    """
    failures: dict[str, str] = {}
    gate = asyncio.Semaphore(jobs)
    progress = tqdm(total=len(sources), unit="doc", file=sys.stderr, disable=None if folder else True)

    async def one(http: httpx.AsyncClient, source: Source) -> str | None:
        async with gate:
            try:
                data = source.path.read_bytes()
                key = fingerprint(data, options)
                if folder is not None and is_done(source, folder, key):
                    return None
                result = await parse_one(http, data, options)
                if folder is None:
                    return markdown_of(result, f"{source.name}_images")[0]
                write_result(source, folder, key, result)
            except (ParseFailed, OSError) as error:
                failures[str(source.path)] = str(error)
            finally:
                progress.update()
            return None

    limits = httpx.Limits(max_connections=jobs)
    async with httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(None, connect=10), limits=limits) as http:
        tasks = [asyncio.create_task(one(http, source)) for source in sources]
        for task in tasks:  # in the order given, whatever finishes first
            text = await task
            if text is not None:
                print(text, flush=True)
    progress.close()
    return failures
