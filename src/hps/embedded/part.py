"""One child process of `hps up`, kept running: started again when it dies, stopped in order, its log at hand."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hps.processes import die_with_parent

log = logging.getLogger(__name__)

SHORT_LIFE_S = 5.0  # who dies younger is started again with a pause
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0


class StartFailed(RuntimeError):
    """A part did not become healthy; the message ends with the last lines of its log."""


@dataclass(slots=True, eq=False)
class Part:
    """`clean_up`, if given, is called before each new start: it removes what the dead process left behind.

    `births` is shared by parts and held during both: a process that is just being started has no known owner yet.
    Until `has_started` is set, by who watches its health, the process is not started again: what cannot start once
    cannot start twice, and nobody should wait for that.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log_file: Path
    births: asyncio.Lock = field(default_factory=asyncio.Lock)
    clean_up: Callable[[], None] | None = None
    has_started: bool = False
    process: asyncio.subprocess.Process | None = None
    stopping: bool = False
    _watch: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> None:
        self._watch = asyncio.create_task(self._run(), name=f"watch {self.name}")

    @property
    def start_failed(self) -> bool:
        return not self.has_started and self._watch is not None and self._watch.done()

    async def _run(self) -> None:
        short_lives = 0
        while True:
            started = time.monotonic()
            try:
                end = f"ended with code {await self._live()}"
            except OSError as error:  # no memory, no process numbers: may be better in a moment
                end = f"cannot be run: {error}"
            if self.stopping or not self.has_started:
                return
            log.warning("%s %s; starting it again", self.name, end)
            short_lives = short_lives + 1 if time.monotonic() - started < SHORT_LIFE_S else 0
            if short_lives:
                await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** (short_lives - 1), LONGEST_PAUSE_S))
            async with self.births:
                if self.clean_up is not None:
                    self.clean_up()

    async def _live(self) -> int:
        # A session of its own: Ctrl-C must reach the supervisor alone, which then stops the parts in order.
        with self.log_file.open("ab") as output:
            async with self.births:
                self.process = await asyncio.create_subprocess_exec(
                    *self.command,
                    env=dict(self.environ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=partial(die_with_parent, signal.SIGTERM),
                )
        return await self.process.wait()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL when `grace_s` have passed."""
        self.stopping = True
        if self._watch is None:
            return
        if self.process is None or self.process.returncode is not None:
            self._watch.cancel()  # between two lives
        else:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        await asyncio.wait([self._watch], timeout=grace_s)
        if not self._watch.done() and self.process is not None and self.process.returncode is None:
            log.warning("%s did not stop within %g s; killing it", self.name, grace_s)
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch

    def log_tail(self, lines: int = 20) -> str:
        """The end of what the process wrote; empty when it never ran."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""
