"""A gRPC server that speaks Triton's protocol and does what the test says."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc


@dataclass(frozen=True)
class Call:
    """One ModelInfer as it arrived."""

    model: str
    id: str
    body: bytes
    shape: tuple[int, ...]
    parameters: dict[str, Any]
    time_left_s: float | None

    @property
    def is_probe(self) -> bool:
        return bool(self.parameters.get("hps_probe"))


async def success(call: Call) -> bytes:
    log_id = json.loads(call.body).get("logId", call.id)
    return json.dumps({"logId": log_id, "result": {}, "errorCode": 0, "errorMsg": "Success"}).encode()


@dataclass(eq=False)
class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """`async with FakeTriton() as triton:` listens on `triton.address`.

    `answer` makes the envelope of a call (it may wait); `error` fails every call with that code instead, `raw` replaces
    the bytes of the output tensor. `gate`, when set to an Event, holds every call until the event is set.
    Change any of them while it runs.
    """

    answer: Callable[[Call], Awaitable[bytes]] = success
    error: grpc.StatusCode | None = None
    raw: bytes | None = None
    delay_s: float = 0.0
    gate: asyncio.Event | None = None
    probes_pass_gate: bool = True
    ready: bool = True
    not_loaded: frozenset[str] = frozenset()
    port: int = 0

    calls: list[Call] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0
    cancelled: int = 0
    finished: int = 0

    async def __aenter__(self) -> Self:
        self._changed = asyncio.Condition()
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """As if killed: the port closes, calls in flight fail."""
        await self._server.stop(grace=None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def documents(self) -> list[Call]:
        """Calls that are not probes."""
        return [call for call in self.calls if not call.is_probe]

    async def until(self, condition: Callable[["FakeTriton"], bool], timeout_s: float = 10) -> None:
        """Waits for a state of the counters. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=self.ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=request.name not in self.not_loaded)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        call = _call(request, context)
        self.calls.append(call)
        await self._count(+1)
        try:
            if self.gate is not None and not (call.is_probe and self.probes_pass_gate):
                await self.gate.wait()
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if self.error is not None:
                await context.abort(self.error, "as the test asked")
            envelope = await self.answer(call)
            self.finished += 1
            return self._response(request, envelope)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            # Shielded: a cancelled call must be counted out too.
            await asyncio.shield(asyncio.ensure_future(self._count(-1)))

    async def _count(self, step: int) -> None:
        self.in_flight += step
        self.peak = max(self.peak, self.in_flight)
        async with self._changed:
            self._changed.notify_all()

    def _response(self, request: Any, envelope: bytes) -> Any:
        response = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
        response.outputs.add(name="output", datatype="BYTES", shape=[1, 1])
        element = struct.pack("<I", len(envelope)) + envelope
        response.raw_output_contents.append(element if self.raw is None else self.raw)
        return response


def _call(request: Any, context: Any) -> Call:
    (tensor,) = request.inputs
    (raw,) = request.raw_input_contents
    (size,) = struct.unpack_from("<I", raw)
    assert (tensor.name, tensor.datatype, size) == ("input", "BYTES", len(raw) - 4)
    assert [output.name for output in request.outputs] == ["output"]
    parameters = {
        name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in request.parameters.items()
    }
    return Call(request.model_name, request.id, raw[4:], tuple(tensor.shape), parameters, context.time_remaining())
