"""A connection that cannot cost more than its requests are worth: uvicorn's HTTP over httptools, with bounds.

uvicorn lets a client send the head of a request for as long and as large as it likes, and never read its answer. Both
hold memory for ever; here each has an end. Bodies are bounded where they are read (`intake`).
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEAD_BYTES: Final = 64 * 1024  # of a head, of trailers, or of one chunk's head
HEAD_TIMEOUT_S: Final = 20.0
STALLED_S: Final = 30.0  # in which a client that has an answer to read reads nothing of it


class Connection(HttpToolsProtocol):
    """Class variables, so that a test can have shorter times."""

    head_bytes = HEAD_BYTES
    head_timeout_s = HEAD_TIMEOUT_S
    stalled_s = STALLED_S

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaits_head = True
        self._idle_bytes = 0  # since the parser last got to the end of a head or found a piece of a body
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._idle_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._idle_bytes > self.head_bytes:
            self._refuse(431)
        elif self._awaits_head and self._idle_bytes:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._awaits_head = False
        self._idle_bytes = 0
        self._stop_head_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._awaits_head = True
        self._idle_bytes = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_stall_timer()
        super().resume_writing()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._is_answering:  # what comes after it has its time when the answer is out
            self._expect_head()
        elif self._idle_bytes:
            self._refuse(408)
        else:
            self.transport.close()

    def _watch_reader(self, left: int) -> None:
        self._stall_timer = self.loop.call_later(self.stalled_s, self._reader_has_had_time, left)

    def _reader_has_had_time(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._watch_reader(left)
        else:
            self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: int) -> None:
        """Ends the connection; with an answer of that status unless another one is on its way."""
        if self._is_answering:
            self.transport.abort()
            return
        self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
