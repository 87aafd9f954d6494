"""Every error that a client can meet, and its place in the published contract (status = errorCode).

    HpsError
    ├── ClientError
    │   ├── MalformedJson        400   the body is not JSON
    │   ├── UnknownPath          404
    │   ├── WrongMethod          405
    │   ├── Unauthorized         401   no key, or one that is not (any longer) known
    │   ├── BodyTooSlow          408   the body did not come at the least pace
    │   ├── TooManyForKey        429   this key has as many requests here as it may; carries Retry-After
    │   ├── PayloadTooLarge      413   the body or the file is over its limit
    │   └── InvalidRequest       422   the schema is violated
    │       └── InvalidInput     422   the file cannot be used: says what is wrong with it
    │           └── NotEnabled   422   asked for something that this configuration lacks: says how to turn it on
    ├── Cancelled                499   the client left; nobody reads the answer
    └── ServerError
        ├── BackendError         500   a stage failed
        ├── Overloaded           503   no place in line; carries Retry-After
        ├── Unavailable          503   a part of the service is away
        └── DeadlineExceeded     504   HPS_INFERENCE_TIMEOUT has passed

Foreign exceptions are translated where they enter (inputs, vlm.client, gateway.backend), by type or code, never text.
"""

from typing import ClassVar


class HpsError(Exception):
    """`message` goes to the client; what only operators may read goes to the log through `__cause__`."""

    status: ClassVar[int] = 500
    default_message: ClassVar[str] = "Internal server error"

    def __init__(self, message: str | None = None) -> None:
        self.message = message or self.default_message
        super().__init__(self.message)

    def named(self, where: str) -> None:
        """Puts before the message where it happened, unless it says so already."""
        if where not in self.message:
            self.message = f"{where}: {self.message}"
            self.args = (self.message,)


class ClientError(HpsError):
    """The client's mistake: the same request would fail again."""

    status = 422


class MalformedJson(ClientError):
    status = 400
    default_message = "Invalid JSON"


class UnknownPath(ClientError):
    status = 404
    default_message = "Not Found"


class WrongMethod(ClientError):
    status = 405
    default_message = "Method Not Allowed"


class Unauthorized(ClientError):
    status = 401
    default_message = "A valid API key is required"


class BodyTooSlow(ClientError):
    status = 408
    default_message = "The request body did not come in time"


class TooManyForKey(ClientError):
    """`retry_after_s` becomes the Retry-After header."""

    status = 429
    default_message = "Too many requests with this key; try again later"

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = max(1, retry_after_s)


class PayloadTooLarge(ClientError):
    status = 413
    default_message = "Request body is too large"


class InvalidRequest(ClientError):
    default_message = "Invalid request"


class InvalidInput(InvalidRequest):
    default_message = "Input file is invalid"


class NotEnabled(InvalidInput):
    default_message = "This option is not enabled in the running configuration"


class Cancelled(HpsError):
    status = 499
    default_message = "Client closed the request"


class ServerError(HpsError):
    """Not the client's mistake."""


class BackendError(ServerError):
    """A stage behind us failed; the detail is in the log."""


class Overloaded(ServerError):
    """No place in the waiting line. `retry_after_s` becomes the Retry-After header."""

    status = 503
    default_message = "Too many requests are waiting; try again later"

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = max(1, retry_after_s)


class Unavailable(ServerError):
    status = 503
    default_message = "Service unavailable"


class DeadlineExceeded(ServerError):
    status = 504
    default_message = "Gateway timeout"
