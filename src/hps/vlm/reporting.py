"""How the VLM client is doing, told to the metrics once a second: in flight, in line, tried again, and every server."""

import asyncio

from hps.metrics import ReplicaState, VlmMetrics
from hps.vlm.client import VlmClient
from hps.vlm.replicas import Replica, State

INTERVAL_S = 1.0


async def report(client: VlmClient, metrics: VlmMetrics) -> None:
    """Until it is cancelled."""
    while True:
        metrics.sample(
            in_flight=client.limiter.held,
            waiting=client.limiter.waiting,
            retries=client.retries,
            replicas=[_state(replica) for replica in client.replicas],
        )
        await asyncio.sleep(INTERVAL_S)


def _state(replica: Replica) -> ReplicaState:
    in_flight = len(replica.in_flight)
    # A server at which nothing of ours is in flight is not asked: what it said last is old.
    queue = replica.load.waiting if in_flight and replica.load is not None else 0
    return ReplicaState(str(replica.address), replica.state is State.UP, in_flight, queue)
