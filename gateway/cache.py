"""Answers by content, in Redis: the same bytes and options, asked of the same release, are parsed once.

A key is a hash of what decides the answer, so nothing has to be invalidated; entries expire. Redis being away, full or
slow costs a request its hit and nothing else.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from pydantic_core import to_json

from hps import settings as hps_settings
from hps.contract import LayoutParsingRequest
from hps.settings import Settings, SettingsError
from hps.version import VERSION

log = logging.getLogger(__name__)

T = TypeVar("T")

HEADER: Final = "X-HPS-Cache"
HIT, MISS, BYPASS = "hit", "miss", "bypass"

READ_S: Final = 0.5
WRITE_S: Final = 5.0
CONNECTIONS: Final = 16  # a burst waits for its turn, rather than all connecting at once
PAUSE_S: Final = 5.0  # without questions to a Redis that has failed
MOST_WRITES: Final = 16  # at once; answers beyond are not kept
THREAD_BYTES: Final = 1 << 20  # from here on hashing leaves the event loop
PREFIX: Final = "hps:answer:"

# What of the configuration decides an answer, beside the release. HPS_PIPELINE_CONFIG counts by its content.
DECISIVE: Final = (
    *("pipeline_name", "vlm_model_name", "max_image_pixels", "pdf_render_scale", "pdf_min_render_scale"),
    *("layout_backend", "layout_model_dir", "orientation_model_dir", "unwarping_model_dir", "layout_fixed_file"),
    "embedded_quality",
)
# What of a request does not decide it. The file counts by its content.
INDIFFERENT: Final = frozenset({"file", "logId"})


class CacheUnavailable(SettingsError):
    """The cache cannot be configured; the message says why."""


class AnswerCache:
    """One a process. `start` it in the loop that uses it."""

    def __init__(self, settings: Settings) -> None:
        """Opens no connection. settings.cache_url must be set. Raises CacheUnavailable."""
        assert settings.cache_url is not None
        try:
            import redis.asyncio
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
            from redis.retry import Retry
        except ImportError as error:
            raise CacheUnavailable("HPS_CACHE_URL needs the extra `cache`: paddleocr-vl-hps[cache]") from error
        try:
            pool = redis.asyncio.BlockingConnectionPool.from_url(
                settings.cache_url,
                max_connections=CONNECTIONS,
                timeout=READ_S,
                socket_timeout=WRITE_S,
                socket_connect_timeout=READ_S,
                retry=Retry(NoBackoff(), 0),
            )
            self._redis = redis.asyncio.Redis.from_pool(pool)
        except ValueError as error:
            raise CacheUnavailable("HPS_CACHE_URL: must be redis://, rediss:// or unix://") from error
        self._failures = (RedisError, OSError, TimeoutError)
        self._ttl_s = settings.cache_ttl
        self._max_bytes = settings.cache_max_answer_bytes
        self._release = _release(settings)
        self._away_until = 0.0
        self._writes: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Says in the log what an operator should know; raises nothing."""
        memory = await self._asked(self._redis.info("memory"), READ_S)
        if memory is not None and not memory.get("maxmemory"):
            log.warning("Redis has no maxmemory: it will grow until answers expire")

    async def close(self) -> None:
        for write in self._writes:
            write.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._redis.aclose()

    async def key_of(self, request: LayoutParsingRequest) -> str | None:
        """None for what is not kept: what a URL names may change, and a partial answer may be whole next time."""
        if request.file.startswith(("http://", "https://")) or getattr(request, "allowPartial", False):
            return None
        if len(request.file) < THREAD_BYTES:
            return self._hash(request)
        return await asyncio.to_thread(self._hash, request)

    async def get(self, key: str, log_id: str) -> bytes | None:
        """The answer, with this logId; None when there is none, or nobody to ask."""
        entry = await self._asked(self._redis.get(key), READ_S)
        # An entry says whose it is: no mix-up on the way, whatever its cause, may become a wrong answer.
        start = key.encode() + b',"result":'
        if not isinstance(entry, bytes) or not entry.startswith(start) or not entry.endswith(b"}"):
            return None
        return _head(log_id) + entry[len(key) :]

    def put(self, key: str, log_id: str, answer: bytes | memoryview) -> None:
        """Keeps a successful answer, in the background, unless it is too large or too many are on their way."""
        head = _head(log_id)
        if len(answer) > self._max_bytes or len(self._writes) >= MOST_WRITES or bytes(answer[: len(head)]) != head:
            return
        write = asyncio.create_task(self._write(key, bytes(answer[len(head) :])))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)

    async def _write(self, key: str, rest: bytes) -> None:
        await self._asked(self._redis.set(key, key.encode() + rest, ex=self._ttl_s), WRITE_S)

    async def _asked(self, question: Awaitable[T], timeout_s: float) -> T | None:
        """What Redis says; None, for a while without asking, when it does not."""
        now = asyncio.get_running_loop().time
        if now() < self._away_until:
            if asyncio.iscoroutine(question):
                question.close()
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await question
        except self._failures as error:
            self._away_until = now() + PAUSE_S
            log.warning("cache not used for %g s: %s", PAUSE_S, type(error).__name__)
            return None

    def _hash(self, request: LayoutParsingRequest) -> str:
        options = request.model_dump(mode="json", exclude=set(INDIFFERENT))
        digest = hashlib.sha256(self._release)
        digest.update(json.dumps(options, sort_keys=True).encode())
        digest.update(b"\0")
        digest.update(request.file.encode("utf-8", "surrogatepass"))
        return PREFIX + digest.hexdigest()


def _head(log_id: str) -> bytes:
    """How the envelope of an answer begins: all of it that belongs to one request."""
    return b'{"logId":' + to_json(log_id)


def _release(settings: Settings) -> bytes:
    """What all answers of this configuration have in common, and those of no other. Raises CacheUnavailable."""
    decisive: dict[str, Any] = {name: str(getattr(settings, name)) for name in DECISIVE}
    decisive |= {"version": VERSION, "vlm": hps_settings.vlm_model(settings)}
    if settings.pipeline_config is not None:
        try:
            decisive["config"] = hashlib.sha256(settings.pipeline_config.read_bytes()).hexdigest()
        except OSError as error:
            message = f"HPS_CACHE_URL: the gateway must be able to read HPS_PIPELINE_CONFIG too ({error.strerror})"
            raise CacheUnavailable(message) from error
    return json.dumps(decisive, sort_keys=True).encode()
