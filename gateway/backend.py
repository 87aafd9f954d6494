"""The models behind the gateway: Triton over gRPC, and the one place where gRPC status codes become our errors."""

import asyncio
import logging
from typing import Any, Protocol

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway import wire
from hps import contract
from hps.errors import BackendError, DeadlineExceeded, HpsError, Unavailable

log = logging.getLogger(__name__)

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Answers are large: fewer frames and window updates for each, 7 % less CPU a request of 1 MB.
    ("grpc.http2.max_frame_size", 4 * 2**20),
    ("grpc.http2.lookahead_bytes", 4 * 2**20),
    # After a restart of Triton: the next try to connect within a second, and a fresh look-up of its address.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),  # how long one try may take, whatever its name says
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    # Triton closes connections that ping more often than every 300 s without data, as a long request would.
    ("grpc.keepalive_time_ms", 310_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # The server is ours and near; a proxy meant for the internet must not come in between.
    ("grpc.enable_http_proxy", 0),
]

# Triton's request id appears in its logs; a longer logId of the client is cut there (never in the answer).
REQUEST_ID_LIMIT = 256


class Backend(Protocol):
    """What the gateway needs of the models. Times in seconds."""

    async def infer(
        self, model: str, body: bytes, *, request_id: str, timeout_s: float, probe: bool = False
    ) -> bytes | memoryview:
        """The model's envelope for the request `body`. Cancelling the call cancels the work behind it.

        `probe` asks the model only to show that it works. Raises Unavailable, DeadlineExceeded, BackendError.
        """

    async def server_ready(self, timeout_s: float) -> bool:
        """Whether the server answers that it is ready. Raises DeadlineExceeded."""

    async def model_ready(self, model: str, timeout_s: float) -> bool:
        """Whether the model is loaded, which does not say that it works. Raises DeadlineExceeded."""

    async def close(self) -> None:
        """Ends the connection and the calls on it."""


class TritonBackend:
    """Backend over one gRPC channel to `address` (host:port), opened by the first call in the running loop.

    The channel reconnects by itself; while Triton is away calls fail at once.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._calls: _Calls | None = None

    async def infer(
        self, model: str, body: bytes, *, request_id: str, timeout_s: float, probe: bool = False
    ) -> bytes | memoryview:
        request = wire.with_input(_header(model, request_id, timeout_s, probe), body)
        started = asyncio.get_running_loop().time()
        try:
            return wire.output(await self._open().infer(request, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            left = started + timeout_s - asyncio.get_running_loop().time()
            raise _translated(error, left) from error
        except ValueError as error:
            raise BackendError from error

    async def server_ready(self, timeout_s: float) -> bool:
        return await self._ready(self._open().stub.ServerReady, service_pb2.ServerReadyRequest(), timeout_s)

    async def model_ready(self, model: str, timeout_s: float) -> bool:
        return await self._ready(self._open().stub.ModelReady, service_pb2.ModelReadyRequest(name=model), timeout_s)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.channel.close()

    async def _ready(self, call: Any, request: Any, timeout_s: float) -> bool:
        try:
            return bool((await call(request, timeout=timeout_s)).ready)
        except grpc.aio.AioRpcError as error:
            translated = _translated(error, timeout_s)
            if isinstance(translated, Unavailable):
                return False
            raise translated from error

    def _open(self) -> "_Calls":
        if self._calls is None:
            self._calls = _Calls(grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS))
        return self._calls


class _Calls:
    """The channel and what is called on it; `infer` takes and returns serialised messages."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self.infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")


def _header(model: str, request_id: str, timeout_s: float, probe: bool) -> bytes:
    """A serialised ModelInferRequest, complete but for the tensor's contents."""
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id[:REQUEST_ID_LIMIT])
    request.inputs.add(name=contract.INPUT_TENSOR, datatype="BYTES", shape=[1, 1])
    request.outputs.add(name=contract.OUTPUT_TENSOR)
    request.parameters[contract.TIMEOUT_PARAMETER].int64_param = int(timeout_s * 1e6)
    if probe:
        request.parameters[contract.PROBE_PARAMETER].bool_param = True
    header: bytes = request.SerializeToString()
    return header


def _translated(error: Any, left_s: float) -> HpsError:
    code = error.code()
    log.warning("Triton call failed: %s: %.300s", code.name, error.details())
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND):  # Triton away; model not loaded
        return Unavailable()
    # The server measures the same deadline; when its clock is a moment ahead, it cancels before we time out.
    if code is grpc.StatusCode.DEADLINE_EXCEEDED or (code is grpc.StatusCode.CANCELLED and left_s <= 0.05):
        return DeadlineExceeded()
    return BackendError()
