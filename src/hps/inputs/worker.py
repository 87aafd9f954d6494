"""A decoder process: `python -m hps.inputs.worker FD LIMITS`, one end of a socket pair and DecodeLimits as JSON.

Requests, each with the document's memory file:
    {"op": "open" | "page", "document": id, "file_type", "max_pages", "index", "timeout_s", "bitmaps"}
    {"op": "forget", "documents": [id, ...], "bitmaps"}  without file or reply
    "bitmaps": {"keep": [number, ...], "drop": [number, ...]}, those that nobody looks at any more
Replies:
    {"kind", "total_pages", "sizes"} | {} of a page | {"invalid": message} for the client
    | {"failed": traceback} for the operator
    With a page, or the document of only one, {"bitmap": number, "size": [width, height]} too: height * width * 3 bytes
    in a memory file (see bitmaps.py), which comes along when the receiver has none of that number.

Any worker can render any page of any document: it opens what it does not hold. It ends when its socket closes, and by
the kernel's timer when a job outlives it: a decoder may hang when nobody is left to kill it.
"""

import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import socket
import sys
import traceback
from collections import OrderedDict
from typing import Any, Final

from hps.errors import InvalidInput
from hps.inputs import channel
from hps.inputs.bitmaps import Bitmap, BitmapFiles
from hps.inputs.decoding import OpenedFile
from hps.inputs.limits import DecodeLimits
from hps.memory import keep_freed_memory

_MAX_OPEN_DOCUMENTS: Final = 4
_KEPT_BYTES: Final = 96 << 20  # of a process: its own 25 MB and the bitmap of a page of 300 dpi
_TIMER_MARGIN_S: Final = 5.0  # the pool's own time limit comes first, and says so


class DocumentCache:
    """The documents that this process holds open, most recently used last."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self._opened: OrderedDict[str, OpenedFile] = OrderedDict()

    def get(self, request: dict[str, Any], file: int) -> OpenedFile:
        """Takes ownership of `file`."""
        name = request["document"]
        if name in self._opened:
            os.close(file)
            self._opened.move_to_end(name)
            return self._opened[name]
        opened = OpenedFile(file, request["file_type"], self._limits, request["max_pages"])
        self._opened[name] = opened
        if len(self._opened) > _MAX_OPEN_DOCUMENTS:
            self._opened.popitem(last=False)[1].close()
        return opened

    def forget(self, names: list[str]) -> None:
        held = [self._opened.pop(name) for name in names if name in self._opened]
        for opened in held:
            opened.close()


def serve(connection: socket.socket, limits: DecodeLimits) -> None:
    """Answers until the other side is gone."""
    cache, bitmaps = DocumentCache(limits), BitmapFiles()
    while True:
        try:
            request, file = channel.receive(connection)
        except EOFError:
            return
        for fate, numbers in request["bitmaps"].items():
            bitmaps.returned(numbers, keep=fate == "keep")
        if file is None:
            cache.forget(request["documents"])
            _give_memory_back()
            continue
        signal.setitimer(signal.ITIMER_REAL, request["timeout_s"] + _TIMER_MARGIN_S)
        reply, bitmap = _answer(cache, bitmaps, request, file)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            channel.send(connection, reply, None if bitmap is None else bitmap.file)
        except OSError:
            return
        finally:
            if bitmap is not None:
                bitmap.close_file()


def _answer(
    cache: DocumentCache, bitmaps: BitmapFiles, request: dict[str, Any], file: int
) -> tuple[dict[str, Any], Bitmap | None]:
    """The border of a job: whatever it raises is told, and the process goes on with the next one."""
    try:
        opened = cache.get(request, file)
        if request["op"] == "page":
            return _page(opened, request["index"], bitmaps)
        reply = {"kind": opened.kind, "total_pages": opened.total_pages, "sizes": opened.sizes}
        if len(opened.sizes) != 1:
            return reply, None
        # The one page of a picture comes along: whoever opens it will ask for it next.
        page, bitmap = _page(opened, 0, bitmaps)
        return reply | page, bitmap
    except InvalidInput as error:
        cache.forget([request["document"]])
        return {"invalid": error.message}, None
    except (MemoryError, OverflowError):
        cache.forget([request["document"]])
        return {"invalid": "The file needs too much memory to be decoded"}, None
    except Exception:
        cache.forget([request["document"]])
        return {"failed": traceback.format_exc(limit=-8)}, None


def _page(opened: OpenedFile, index: int, bitmaps: BitmapFiles) -> tuple[dict[str, Any], Bitmap]:
    bitmap = opened.render(index, bitmaps)
    return {"bitmap": bitmap.number, "size": opened.sizes[index]}, bitmap


def _give_memory_back() -> None:
    """What the C library keeps of freed documents goes back to the system, unless it is no more than the next page
    takes anyway: clearing fresh memory costs as much as decoding into it."""
    gc.collect()
    if _resident_bytes() > _KEPT_BYTES:
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def _restrain(limits: DecodeLimits) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the pool decides when to end.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


def main(arguments: list[str]) -> None:
    connection = socket.socket(fileno=int(arguments[0]))
    limits = DecodeLimits(**json.loads(arguments[1]))
    _restrain(limits)
    keep_freed_memory(kept_mib=_KEPT_BYTES >> 20, largest_block_mib=32)
    gc.freeze()  # a collection after each document need not walk through modules that stay
    # All is imported, and stderr has said what there was to say: from here on C libraries would fill it with remarks on
    # clients' files.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    channel.send(connection, {"ready": os.getpid()})
    serve(connection, limits)


if __name__ == "__main__":
    main(sys.argv[1:])
