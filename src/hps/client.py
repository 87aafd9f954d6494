"""`hps parse`: documents in, Markdown files out, through the service's HTTP API like any other client."""

import asyncio
import base64
import hashlib
import ipaddress
import json
import re
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from tqdm import tqdm

SUFFIXES = {".pdf", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"}
MAX_TRIES = 5
FIRST_WAIT_S = 0.5  # a gateway that was restarted is back in a few seconds
LONGEST_WAIT_S = 60.0
CONNECT_S = 10.0
# What would end a link in Markdown or HTML early, or mean something in a URL.
_NOT_IN_LINKS = re.compile(r"""[\s%#?()<>\[\]"'\\]""")


class ParseFailed(Exception):
    """One document was refused; the message is the service's own."""


class ServiceAway(Exception):
    """Nobody answers at the service's address; the other documents would fare no better."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document on disk and the base name of its results."""

    path: Path
    name: str

    def result_files(self, folder: Path) -> tuple[Path, Path, Path]:
        return folder / f"{self.name}.md", folder / f"{self.name}.json", folder / f"{self.name}_images"


@dataclass(slots=True)
class Report:
    """failures: path → problem."""

    parsed: int
    skipped: int
    failures: dict[str, str]


# --- which documents, under which names ---


def find_sources(paths: Iterable[Path], output: Path | None = None) -> list[Source]:
    """Files as given, folders searched for documents; results keep a folder's structure.

    Two documents that would share a result name (a.pdf, a.png) keep their suffix in it. A file named twice counts once.
    What lies in `output`, or is a picture of an earlier result, is no document. Raises FileNotFoundError.
    """
    found: dict[Path, tuple[Path, Path]] = {}
    for path in paths:
        if path.is_dir():
            for inside in sorted(path.rglob("*")):
                if inside.suffix.lower() in SUFFIXES and inside.is_file() and not _is_result(inside, path, output):
                    found.setdefault(inside.resolve(), (inside, inside.relative_to(path)))
        elif path.is_file():
            found.setdefault(path.resolve(), (path, Path(path.name)))
        else:
            raise FileNotFoundError(f"no such file or folder: {path}")
    stems = Counter(_stem(relative) for _, relative in found.values())
    taken: set[str] = set()
    sources = []
    for path, relative in found.values():
        name = str(relative if stems[_stem(relative)] > 1 else relative.with_suffix(""))
        sources.append(Source(path, _free_name(name, taken)))
    return sources


def _stem(relative: Path) -> str:
    """Alike for names that some file systems hold for the same."""
    return str(relative.with_suffix("")).casefold()


def _free_name(name: str, taken: set[str]) -> str:
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.casefold())
    return free


def _is_result(file: Path, searched: Path, output: Path | None) -> bool:
    if output is not None and output.resolve() != searched.resolve() and output.resolve() in file.resolve().parents:
        return True
    return any(
        parent.name.endswith("_images") and parent.with_name(parent.name.removesuffix("_images") + ".json").exists()
        for parent in file.parents
    )


# --- one document ---


def fingerprint(data: bytes, options: dict[str, Any]) -> str:
    """What a result was made from: the same file with the same options is not parsed again."""
    return hashlib.sha256(hashlib.sha256(data).digest() + json.dumps(options, sort_keys=True).encode()).hexdigest()


async def parse_one(
    http: httpx.AsyncClient, data: bytes, options: dict[str, Any], *, first_wait_s: float = FIRST_WAIT_S
) -> dict[str, Any]:
    """The `result` of /layout-parsing. Waits and tries again while the service is full or away.

    Raises ParseFailed, or ServiceAway when nobody has answered at the last try.
    """
    file_type = 0 if b"%PDF" in data[:1024] else 1
    body = {"file": base64.b64encode(data).decode(), "fileType": file_type, "visualize": False} | options
    for attempt in range(MAX_TRIES):
        is_last = attempt + 1 == MAX_TRIES
        wait_s = first_wait_s * 2**attempt
        try:
            response = await http.post("/layout-parsing", json=body)
        except httpx.TransportError as error:
            if is_last:
                raise ServiceAway(_away(http, error)) from error
        else:
            if response.status_code == 200:
                return _result(response)
            if response.status_code != 503 or is_last:
                raise ParseFailed(f"{response.status_code}: {_message(response)}")
            wait_s = _retry_after(response, wait_s)
        await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))
    raise AssertionError("unreachable")


def _result(response: httpx.Response) -> dict[str, Any]:
    try:
        result = response.json()["result"]
        pages = result["layoutParsingResults"]
        if all(isinstance(page["markdown"]["text"], str) for page in pages):
            return dict(result)
    except (ValueError, LookupError, TypeError):
        pass  # as any other answer that is none
    raise ParseFailed("the answer is not one of this service; is the address right?")


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["errorMsg"])
    except (ValueError, LookupError, TypeError):
        return f"{response.reason_phrase} (not in this service's form; is the address right?)"


def _retry_after(response: httpx.Response, otherwise_s: float) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else otherwise_s  # the other form, a date, no service of ours sends


def _away(http: httpx.AsyncClient, error: httpx.TransportError) -> str:
    return f"cannot reach the service at {http.base_url} ({type(error).__name__}); is it running? (hps up, or --url)"


# --- its results ---


def markdown_of(result: dict[str, Any], image_folder: str) -> tuple[str, dict[str, bytes]]:
    """The document's Markdown and its images by path. Pages may use equal names, so each gets its page's prefix."""
    texts, images = [], {}
    for number, page in enumerate(result["layoutParsingResults"], start=1):
        links = {}
        for path, content in (page["markdown"].get("images") or {}).items():
            if content.startswith(("http://", "https://")):  # the service keeps its pictures elsewhere
                links[path] = content
                continue
            file = f"{image_folder}/page{number}_{Path(path).name}"
            links[path] = _NOT_IN_LINKS.sub(lambda match: quote(match.group()), file)
            images[file] = base64.b64decode(content)
        texts.append(_renamed(page["markdown"]["text"], links) if links else page["markdown"]["text"])
    return "\n\n".join(texts).strip() + "\n", images


def _renamed(text: str, names: dict[str, str]) -> str:
    """One pass, longest name first: a name that begins like another is not cut in half."""
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(pattern, lambda match: names[match.group()], text)


def write_result(source: Source, folder: Path, key: str, result: dict[str, Any]) -> None:
    """Markdown and images first; the .json last, because its key marks the document as done."""
    markdown_file, json_file, image_folder = source.result_files(folder)
    markdown_file.parent.mkdir(parents=True, exist_ok=True)
    if json_file.exists():  # then the images are those of an older result
        shutil.rmtree(image_folder, ignore_errors=True)
    text, images = markdown_of(result, image_folder.name)
    for relative, content in images.items():
        target = markdown_file.parent / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    markdown_file.write_text(text, encoding="utf-8")
    pages = [
        page | {"markdown": {name: value for name, value in page["markdown"].items() if name != "images"}}
        for page in result["layoutParsingResults"]
    ]
    record = {"fingerprint": key, "result": result | {"layoutParsingResults": pages}}
    partial = json_file.with_name(json_file.name + ".part")
    partial.write_text(json.dumps(record, ensure_ascii=False, indent=1), "utf-8")
    partial.replace(json_file)


def is_done(source: Source, folder: Path, key: str) -> bool:
    """Whether its results are there and were made from the same file with the same options."""
    markdown_file, json_file, _ = source.result_files(folder)
    if not (markdown_file.exists() and json_file.exists()):
        return False
    try:
        return bool(json.loads(json_file.read_text("utf-8")).get("fingerprint") == key)
    except (ValueError, AttributeError):
        return False


# --- all documents ---


async def parse_all(
    url: str, sources: Sequence[Source], folder: Path | None, options: dict[str, Any], jobs: int
) -> Report:
    """Parses `jobs` documents at once. Raises ServiceAway, with what was done until then done.

    With a folder, writes the results there and skips what is done; without, prints each Markdown to standard output.
    """
    report = Report(0, 0, {})
    gate = asyncio.Semaphore(jobs)

    async def one(http: httpx.AsyncClient, source: Source) -> str | None:
        async with gate:
            try:
                data = source.path.read_bytes()
                key = fingerprint(data, options)
                if folder is not None and is_done(source, folder, key):
                    report.skipped += 1
                    return None
                result = await parse_one(http, data, options)
                if folder is not None:
                    write_result(source, folder, key, result)
                report.parsed += 1
                return markdown_of(result, f"{source.name}_images")[0]
            except (ParseFailed, OSError) as error:
                report.failures[str(source.path)] = str(error)
                return None
            finally:
                progress.update()

    # Without a folder the documents themselves show how far it is.
    with tqdm(total=len(sources), unit="doc", file=sys.stderr, disable=None if folder else True) as progress:
        async with _http(url, jobs) as http:
            await _require_service(http)
            tasks = [asyncio.create_task(one(http, source)) for source in sources]
            try:
                for task in tasks:  # in the order given, whatever finishes first
                    text = await task
                    if text is not None and folder is None:
                        print(text, flush=True)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    return report


async def _require_service(http: httpx.AsyncClient) -> None:
    """Asks before the documents do, so that a wrong address is known at once."""
    try:
        await http.get("/health", timeout=CONNECT_S)
    except httpx.TransportError as error:
        raise ServiceAway(_away(http, error)) from error


def _http(url: str, connections: int) -> httpx.AsyncClient:
    # An answer may take as long as the service allows; what must not last for ever is waiting for a dead machine.
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    limits = httpx.Limits(max_connections=connections)
    # A proxy for the internet does not reach a service on this machine.
    try:
        is_near = _is_loopback(httpx.URL(url).host)
    except httpx.InvalidURL as error:
        raise ServiceAway(f"{url} is not an address ({error})") from error
    transport = httpx.AsyncHTTPTransport(limits=limits, socket_options=options)
    return httpx.AsyncClient(
        base_url=url, timeout=httpx.Timeout(None, connect=CONNECT_S), transport=transport, trust_env=not is_near
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
