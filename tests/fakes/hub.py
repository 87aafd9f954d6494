"""Model hubs as a real little server: Hugging Face's and ModelScope's APIs, the store of the SDKs, a registry.

Files come through a redirect, with Range, and on demand broken off or wrong.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

COMMIT = "c0ffee" * 6 + "c0ff"
_PIECE = 64 * 1024
# Larger ones are kept apart by the hubs, with a SHA-256 of their own.
_LFS_BYTES = 10_000


@dataclass
class FakeHub:
    """repositories: name → path → content. sdks: path below /sdks → archive. cut: path → how often it is broken
    off, and after how many bytes. stalled: path → bytes after which nothing comes any more. wrong: paths whose content
    is not what the listing says. stated: path → size in the listing. requests: what was asked for; ranges: those that
    asked for a part."""

    repositories: dict[str, dict[str, bytes]]
    sdks: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, tuple[int, int]] = field(default_factory=dict)
    stalled: dict[str, int] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)
    stated: dict[str, int] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    ranges: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/models/{owner}/{name}/revision/{revision}", self._huggingface),
                Route("/api/v1/models/{owner}/{name}/repo/files", self._modelscope),
                Route("/{owner}/{name}/resolve/{revision}/{path}", self._resolve),
                Route("/models/{owner}/{name}/resolve/{revision}/{path}", self._resolve),
                Route("/store/{owner}/{name}/{path}", self._file),
                Route("/sdks/{version}/{archive}", self._sdk, methods=["GET", "HEAD"]),
                Route("/registry", lambda _: Response("")),
            ]
        )

    async def _huggingface(self, request: Request) -> Response:
        files = self._files(request)
        if files is None or request.path_params["revision"] not in ("main", COMMIT):
            return JSONResponse({"error": "Repository not found"}, 401)
        siblings: list[dict[str, Any]] = []
        for path, content in files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry = {"rfilename": path, "size": self.stated.get(path, len(content)), "blobId": blob}
            if len(content) >= _LFS_BYTES:
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 135}
            siblings.append(entry)
        return JSONResponse({"sha": COMMIT, "siblings": siblings})

    async def _modelscope(self, request: Request) -> Response:
        files = self._files(request)
        if files is None or request.query_params["Revision"] not in ("master", COMMIT):
            return JSONResponse({"Code": 10010205001, "Success": False, "Message": "not found"}, 404)
        entries = [
            {
                "Path": path,
                "Type": "blob",
                "Size": self.stated.get(path, len(content)),
                "Sha256": hashlib.sha256(content).hexdigest(),
                "Revision": COMMIT,
            }
            for path, content in files.items()
        ]
        return JSONResponse({"Code": 200, "Success": True, "Data": {"Files": entries}})

    async def _resolve(self, request: Request) -> Response:
        files, path = self._files(request), request.path_params["path"]
        if files is None or path not in files or request.path_params["revision"] != COMMIT:
            return Response(status_code=404)
        return RedirectResponse(f"/store/{request.path_params['owner']}/{request.path_params['name']}/{path}", 302)

    async def _file(self, request: Request) -> Response:
        path = request.path_params["path"]
        files = self._files(request)
        assert files is not None
        return self._content(request, path, files[path])

    async def _sdk(self, request: Request) -> Response:
        path = f"{request.path_params['version']}/{request.path_params['archive']}"
        self.requests[path] += 1
        if path not in self.sdks:
            return Response(status_code=404)
        if request.method == "HEAD":
            return Response(headers={"Content-Length": str(len(self.sdks[path]))})
        return self._content(request, path, self.sdks[path])

    def _files(self, request: Request) -> dict[str, bytes] | None:
        repository = f"{request.path_params['owner']}/{request.path_params['name']}"
        self.requests[repository] += 1
        return self.repositories.get(repository)

    def _content(self, request: Request, path: str, content: bytes) -> Response:
        if path in self.wrong:
            content = bytes(len(content))
        start, headers, status = 0, {}, 200
        if asked := request.headers.get("Range"):
            self.ranges.append(f"{path} {asked}")
            start, status = int(asked.removeprefix("bytes=").rstrip("-")), 206
            headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        headers["Content-Length"] = str(len(content) - start)
        times, after = self.cut.get(path, (0, 0))
        if times:
            self.cut[path] = (times - 1, after)
        end = after if times else self.stalled.get(path)
        return StreamingResponse(_pieces(content[start:], end, path in self.stalled), status, headers)


async def _pieces(content: bytes, end: int | None, stalls: bool) -> AsyncIterator[bytes]:
    """Ends early when it is to be broken off: the server then closes the connection."""
    content = content if end is None else content[:end]
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]
    if stalls:
        await asyncio.Event().wait()  # until the client goes


def model(kind: str, weight_bytes: int = 300_000) -> dict[str, bytes]:
    """The files of a repository with a model, and others that nobody needs."""
    weights = hashlib.shake_256(kind.encode()).digest(weight_bytes)
    return {
        ".gitattributes": b"*.safetensors filter=lfs",
        "README.md": b"# model",
        "config.json": json.dumps({"model_type": kind}).encode(),
        "configuration.json": b"{}",
        "model.safetensors": weights,
        "modeling.py": b"print('never fetched')",
        "preprocessor_config.json": b"{}",
    }
