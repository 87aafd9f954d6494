"""What the service counts and times, as Prometheus metrics: every family of every part is made here and nowhere else.

A part is several processes (Uvicorn workers, coordinators). Each writes its values into files of one folder
(`PROMETHEUS_MULTIPROC_DIR`, which must be set before prometheus_client is first imported); `serve` adds them up at each
scrape. Without that folder, as in unit tests, values stay within the object.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from hps.context import StageTimes

log = logging.getLogger(__name__)

STAGES: Final = ("queue", "open", *(field.name for field in fields(StageTimes)))

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(frozen=True, slots=True)
class Family:
    """name: as it is exported. kind: counter, gauge or histogram. among_processes: how the gauges of several processes
    become one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    labels: tuple[str, ...] = ()
    among_processes: Literal["livesum", "livemax"] = "livesum"


FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family("hps_gateway_requests_total", "counter", "Requests by route and HTTP status", ("route", "status")),
            Family("hps_gateway_request_seconds", "histogram", "Seconds from arrival to answer", ("route",)),
            Family("hps_gateway_requests_in_work", "gauge", "Requests that hold a slot", ("route",)),
            Family("hps_gateway_requests_waiting", "gauge", "Requests that wait for a slot or send a body", ("route",)),
            Family("hps_gateway_requests_refused_total", "counter", "Requests for which no room was left", ("route",)),
            Family("hps_stage_seconds", "histogram", "Seconds by stage, waiting for one's turn included", ("stage",)),
            Family("hps_pipeline_requests_total", "counter", "Requests by model and status", ("model", "status")),
            Family("hps_pipeline_requests_in_work", "gauge", "Requests in work in the model's processes", ("model",)),
            Family("hps_pages_total", "counter", "Pages parsed"),
            Family("hps_blank_pages_total", "counter", "Pages without ink, among those parsed"),
            Family("hps_blocks_total", "counter", "Blocks that the VLM read", ("kind",)),
            Family("hps_vlm_tokens_total", "counter", "Tokens that the VLM wrote", ("kind",)),
            Family("hps_vlm_stops_total", "counter", "Blocks whose text was ended before its model did", ("reason",)),
            Family("hps_vlm_retries_total", "counter", "Further tries of blocks after a failure"),
            Family("hps_vlm_blocks_in_flight", "gauge", "Blocks at the VLM servers"),
            Family("hps_vlm_blocks_waiting", "gauge", "Blocks that wait for their turn to be sent"),
            Family("hps_vlm_replica_up", "gauge", "1 when the server takes blocks", ("replica",), "livemax"),
            Family("hps_vlm_replica_blocks", "gauge", "Blocks of ours at the server", ("replica",)),
            Family("hps_vlm_replica_queue", "gauge", "Requests that wait in the server", ("replica",), "livemax"),
        )
    }
)


def _counter(name: str, registry: CollectorRegistry) -> Counter:
    family = FAMILIES[name]
    return Counter(name, family.description, family.labels, registry=registry)


def _gauge(name: str, registry: CollectorRegistry) -> Gauge:
    family = FAMILIES[name]
    mode = family.among_processes
    return Gauge(name, family.description, family.labels, multiprocess_mode=mode, registry=registry)


def _histogram(name: str, registry: CollectorRegistry) -> Histogram:
    family = FAMILIES[name]
    return Histogram(name, family.description, family.labels, buckets=_SECONDS, registry=registry)


class GatewayMetrics:
    """Of one gateway process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = _counter("hps_gateway_requests_total", self.registry)
        self._request_seconds = _histogram("hps_gateway_request_seconds", self.registry)
        self._in_work = _gauge("hps_gateway_requests_in_work", self.registry)
        self._waiting = _gauge("hps_gateway_requests_waiting", self.registry)
        self._refused = _counter("hps_gateway_requests_refused_total", self.registry)
        self._stage_seconds = _histogram("hps_stage_seconds", self.registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request ended; status 499 when its client left before the answer."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def admission(self, route: str) -> "AdmissionMetrics":
        return AdmissionMetrics(
            self._in_work.labels(route),
            self._waiting.labels(route),
            self._refused.labels(route),
            self._stage_seconds.labels("queue"),
        )


class AdmissionMetrics:
    """The line in front of one route."""

    def __init__(self, in_work: Gauge, waiting: Gauge, refused: Counter, queue_seconds: Histogram) -> None:
        self._in_work = in_work
        self._waiting = waiting
        self._refused = refused
        self._queue_seconds = queue_seconds

    def changed(self, in_work: int, waiting: int) -> None:
        self._in_work.set(in_work)
        self._waiting.set(waiting)

    def refused(self) -> None:
        self._refused.inc()

    def waited(self, seconds: float) -> None:
        """A request got its slot this long after its body was there."""
        self._queue_seconds.observe(seconds)


class RequestMetrics:
    """The requests of one public model in one process."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._requests = _counter("hps_pipeline_requests_total", self.registry)
        self._in_work = _gauge("hps_pipeline_requests_in_work", self.registry).labels(model)

    def answered(self, status: int) -> None:
        """status: of the envelope; 499 when the client left."""
        self._requests.labels(self._model, str(status)).inc()

    def in_work(self, count: int) -> None:
        self._in_work.set(count)


class PageMetrics:
    """Pages and blocks of one coordinator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._pages = _counter("hps_pages_total", self.registry)
        self._blank_pages = _counter("hps_blank_pages_total", self.registry)
        self._stage_seconds = _histogram("hps_stage_seconds", self.registry)
        self._blocks = _counter("hps_blocks_total", self.registry)
        self._tokens = _counter("hps_vlm_tokens_total", self.registry)
        self._stops = _counter("hps_vlm_stops_total", self.registry)

    def page(self, times: StageTimes, *, is_blank: bool) -> None:
        self._pages.inc()
        if is_blank:
            self._blank_pages.inc()
        for field in fields(times):
            self._stage_seconds.labels(field.name).observe(getattr(times, field.name))

    def opened(self, seconds: float) -> None:
        """A document was there and open after this long."""
        self._stage_seconds.labels("open").observe(seconds)

    def block(self, kind: str, tokens: int, stopped: str | None = None) -> None:
        """kind: a key of recognition.PROMPTS. stopped: why its text ended early, if it did."""
        self._blocks.labels(kind).inc()
        self._tokens.labels(kind).inc(tokens)
        if stopped is not None:
            self._stops.labels(stopped).inc()


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A VLM server as a coordinator sees it. blocks: of ours, there. queue: requests of everybody that wait in it."""

    name: str
    is_up: bool
    blocks: int
    queue: int


class VlmMetrics:
    """The VLM client of one coordinator, sampled."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._retries = _counter("hps_vlm_retries_total", self.registry)
        self._in_flight = _gauge("hps_vlm_blocks_in_flight", self.registry)
        self._waiting = _gauge("hps_vlm_blocks_waiting", self.registry)
        self._up = _gauge("hps_vlm_replica_up", self.registry)
        self._replica_blocks = _gauge("hps_vlm_replica_blocks", self.registry)
        self._replica_queue = _gauge("hps_vlm_replica_queue", self.registry)
        self._retries_before = 0
        self._known: set[str] = set()

    def sample(self, *, in_flight: int, waiting: int, retries: int, replicas: Sequence[ReplicaState]) -> None:
        """retries: since the client was made. A server that is no longer among the replicas is down from then on."""
        self._retries.inc(retries - self._retries_before)
        self._retries_before = retries
        self._in_flight.set(in_flight)
        self._waiting.set(waiting)
        gone = self._known - {replica.name for replica in replicas}
        for replica in (*replicas, *(ReplicaState(name, False, 0, 0) for name in gone)):
            self._up.labels(replica.name).set(replica.is_up)
            self._replica_blocks.labels(replica.name).set(replica.blocks)
            self._replica_queue.labels(replica.name).set(replica.queue)
        self._known = {replica.name for replica in replicas}


# --- exposition ---


class _OfLiveProcesses(Collector):
    """Leaves out, and forgets, the gauges of processes that are gone: what they held, nobody holds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        for file in self._folder.glob("gauge_live*.db"):
            pid = int(file.stem.rpartition("_")[2])
            if not _is_alive(pid):
                mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]
        found: Iterable[Metric] = self._all.collect()  # type: ignore[no-untyped-call]
        return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def registry_of(folder: Path) -> CollectorRegistry:
    """What the processes of `folder` have counted, together."""
    registry = CollectorRegistry()
    registry.register(_OfLiveProcesses(folder))
    return registry


def serve(folder: Path, host: str, port: int) -> bool:
    """Serves `/metrics` for the processes of `folder`, in a thread, until this process ends.

    False when the port cannot be had: that is logged, and the service works without metrics.
    """
    try:
        start_http_server(port, host, registry_of(folder))
    except OSError as error:
        log.error("no metrics: port %d of %s cannot be used (%s)", port, host, error.strerror)
        return False
    log.info("metrics at http://%s:%d/metrics", host, port)
    return True


def clear(folder: Path) -> None:
    """Forgets everything that was counted. No process may be writing there."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink()
