"""How long a request may go on: until its deadline, while its client is there, and while the service runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from hps.errors import Cancelled, DeadlineExceeded, Unavailable


@asynccontextmanager
async def until(deadline: float) -> AsyncIterator[None]:
    """Cancels the body at `deadline` (a reading of the loop's clock) and raises DeadlineExceeded in its place."""
    try:
        async with asyncio.timeout_at(deadline) as scope:
            yield
    except TimeoutError:
        if scope.expired():
            raise DeadlineExceeded from None
        raise


@asynccontextmanager
async def while_running() -> AsyncIterator[None]:
    """Raises Unavailable in place of the cancellation by which the server ends a request when its drain time is over.

    For the outermost block of a request: nobody but the server cancels that from outside.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()  # the answer is still to be sent
        raise Unavailable("The service is stopping") from None


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancels the body when the client disconnects and raises Cancelled in its place.

    The request's body must have been read: from then on the server's only further message is the disconnect.
    """
    left = False
    try:
        # A timeout without an end is asyncio's cancel scope: the watcher lets it expire.
        async with asyncio.timeout(None) as scope:
            watcher = asyncio.create_task(_expire_on_disconnect(request, scope))
            try:
                yield
            finally:
                watcher.cancel()
                await asyncio.wait([watcher])
    except TimeoutError:
        left = scope.expired()
        if not left:
            raise
    if left:
        raise Cancelled


async def _expire_on_disconnect(request: Request, scope: asyncio.Timeout) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.reschedule(asyncio.get_running_loop().time())
