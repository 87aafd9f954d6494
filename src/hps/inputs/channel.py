"""Messages between the pool and its worker processes: a JSON header and, with it, at most one file descriptor.

Files and bitmaps travel as anonymous memory files, so that nothing is copied through the socket, nothing is pickled
and nothing is left behind when a process is killed.
"""

import array
import fcntl
import json
import os
import socket
import struct
import time
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")
_MAX_HEADER_BYTES: Final = 64 << 20  # the page sizes of a PDF with a million pages fit
_READ_ONLY: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def memory_file(data: bytes | bytearray | memoryview) -> int:
    """An anonymous memory file that holds `data` and that nobody can change. The caller closes it."""
    file = os.memfd_create("document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(data).cast("B")
        while len(rest):
            rest = rest[os.write(file, rest) :]
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _READ_ONLY)
    except BaseException:
        os.close(file)
        raise
    return file


def send(channel: socket.socket, header: dict[str, Any], file: int | None = None) -> None:
    """Raises OSError when the other side is gone."""
    body = json.dumps(header).encode()
    message = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(channel, [message], [] if file is None else [file])
    channel.sendall(message[sent:])


def receive(channel: socket.socket, timeout_s: float | None = None) -> tuple[dict[str, Any], int | None]:
    """The next message; the caller owns its descriptor. Raises EOFError when the other side is gone, TimeoutError after
    `timeout_s` for the whole message."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    _patience(channel, deadline)
    file: int | None = None
    try:
        head, file = _receive_head(channel)
        (length,) = _LENGTH.unpack(head + _receive_exactly(channel, _LENGTH.size - len(head), deadline))
        if length > _MAX_HEADER_BYTES:
            raise EOFError("message out of bounds")
        return json.loads(_receive_exactly(channel, length, deadline)), file
    except BaseException as error:
        if file is not None:
            os.close(file)
        if isinstance(error, ConnectionError | ValueError):
            raise EOFError("connection lost, or no message of ours") from error
        raise


def _receive_head(channel: socket.socket) -> tuple[bytes, int | None]:
    """The first bytes of a message: the descriptor comes with them."""
    files = array.array("i")
    head, ancillary, _, _ = channel.recvmsg(
        _LENGTH.size, socket.CMSG_SPACE(files.itemsize), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    )
    if not head:
        raise EOFError("connection closed")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    return head, files[0] if files else None


def _receive_exactly(channel: socket.socket, length: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        _patience(channel, deadline)
        part = channel.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise EOFError("connection closed in the middle of a message")
        parts += part
    return bytes(parts)


def _patience(channel: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        channel.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    channel.settimeout(left)
