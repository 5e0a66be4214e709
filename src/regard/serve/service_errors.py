"""Errors of the service: each has an HTTP status, a code and a message of one line."""

from __future__ import annotations

from regard.errors import RegardError


class ServiceError(RegardError):
    """A request that the service does not answer. `retry_after` is in seconds, where it helps."""

    status = 500
    code = "internal_error"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidRequest(ServiceError):
    """An option or a text that cannot be used; the message names it."""

    status, code = 422, "invalid_request"


class TooLarge(ServiceError):
    """A request beyond a limit; the message names the limit."""

    status, code = 413, "too_large"


class UnknownModel(ServiceError):
    """A model that the service does not have."""

    status, code = 404, "unknown_model"


class QueueFull(ServiceError):
    """The queue of the model has no space for the texts of the request."""

    status, code = 429, "queue_full"


class Draining(ServiceError):
    """The service is stopping and takes no new requests."""

    status, code = 503, "draining"


class DeadlineExceeded(ServiceError):
    """The request was not answered in time."""

    status, code = 504, "deadline_exceeded"


class WorkerLost(ServiceError):
    """Two workers died while they ran the request."""

    status, code = 503, "worker_lost"


class LoadFailed(ServiceError):
    """A bundle that cannot be served; after a failed reload, the previous one still is."""

    status, code = 500, "load_failed"
