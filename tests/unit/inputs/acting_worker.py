"""A worker that does what its document says: "crash", "hang", "crash once PATH", else one white pixel.

It speaks the real protocol, and stands in for a decoder that a hostile file takes down.
"""

import fcntl
import os
import signal
import socket
import sys
from pathlib import Path

from hps.inputs import channel


def act(play: str) -> None:
    if play.startswith("crash once "):
        if not Path(play[11:]).exists():
            Path(play[11:]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif play == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif play == "hang":
        signal.pause()


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[-2]))
    channel.send(connection, {"ready": os.getpid()})
    while True:
        try:
            request, file = channel.receive(connection)
        except EOFError:
            return
        if file is None:
            continue
        play = os.pread(file, 4096, 0).decode()
        os.close(file)
        if request["op"] == "page" or play.startswith("open "):
            act(play.removeprefix("open "))
        if request["op"] == "open":
            channel.send(connection, {"kind": "image", "total_pages": 1, "sizes": [[1, 1]]})
        else:
            page = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.write(page, b"\xff\xff\xff")
            fcntl.fcntl(page, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            channel.send(connection, {"bitmap": None, "size": [1, 1]}, page)
            os.close(page)


main()
