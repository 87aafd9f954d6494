"""What Triton's Python backend gives to a model, as far as our code uses it: values and recorded sends, no server."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message = message
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self._name = name
        self._values = values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._values


class InferenceResponse:
    def __init__(self, output_tensors: list[Tensor], error: TritonError | None = None) -> None:
        self.tensors = {tensor.name(): tensor for tensor in output_tensors}
        self._error = error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class Sender:
    """Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[InferenceResponse, int]] = []
        self.client_left = False

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.client_left

    def response(self) -> InferenceResponse:
        """The one response. Fails unless there was exactly one send, with FINAL."""
        ((response, flags),) = self.sent
        assert flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        return response

    def envelope(self) -> dict[str, Any]:
        values = self.response().tensors["output"].as_numpy()
        assert values.shape == (1, 1)
        envelope: dict[str, Any] = json.loads(values[0, 0])
        return envelope


class Request:
    """A request to a model; `inputs` by name."""

    def __init__(
        self, inputs: dict[str, Any], *, request_id: str = "", parameters: dict[str, Any] | None = None
    ) -> None:
        self.inputs = {name: Tensor(name, values) for name, values in inputs.items()}
        self.sender = Sender()
        self._id = request_id
        self._parameters = parameters or {}

    def get_response_sender(self) -> Sender:
        return self.sender

    def request_id(self) -> str:
        return self._id

    def parameters(self) -> str:
        return json.dumps(self._parameters)


def json_request(body: Any, **options: Any) -> Request:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request({"input": np.array([[payload]], dtype=np.object_)}, **options)


class _Metric:
    def __init__(self) -> None:
        self.value = 0.0

    def increment(self, by: float) -> None:
        self.value += by


class MetricFamily:
    COUNTER = 0

    def __init__(self, *, name: str, description: str, kind: int) -> None:
        self.name = name
        self.metric = _Metric()

    def Metric(self, *, labels: dict[str, str]) -> _Metric:
        return self.metric


class PbUtils:
    """Stands for the module. `answer` is the other model of BLS calls: inputs by name → response, or raises."""

    def __init__(self, answer: Callable[[dict[str, Any]], InferenceResponse] | None = None) -> None:
        self._answer = answer
        self.families: list[MetricFamily] = []

    TRITONSERVER_RESPONSE_COMPLETE_FINAL = TRITONSERVER_RESPONSE_COMPLETE_FINAL
    TritonError = TritonError
    Tensor = Tensor
    InferenceResponse = InferenceResponse
    COUNTER = MetricFamily.COUNTER

    @staticmethod
    def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
        return request.inputs.get(name)

    @staticmethod
    def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
        return response.tensors.get(name)

    @property
    def MetricFamily(self) -> Any:
        families = self.families

        class Recorded(MetricFamily):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                families.append(self)

        return Recorded

    @property
    def InferenceRequest(self) -> Any:
        answer = self._answer

        class BlsRequest:
            def __init__(self, *, model_name: str, requested_output_names: list[str], inputs: list[Tensor]) -> None:
                assert model_name == "layout-detection"
                self.inputs = {tensor.name(): tensor.as_numpy() for tensor in inputs}

            def exec(self) -> InferenceResponse:
                assert answer is not None
                return answer(self.inputs)

        return BlsRequest
