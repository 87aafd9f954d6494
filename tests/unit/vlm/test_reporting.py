import asyncio
import contextlib

from hps.context import RequestContext
from hps.metrics import VlmMetrics
from hps.vlm import reporting
from hps.vlm.client import VlmClient, VlmOptions
from tests.fakes.vlm import FakeVlm
from tests.unit.test_metrics import values
from tests.unit.vlm.test_client import block


async def test_what_the_client_has_in_flight_and_its_servers_are_told() -> None:
    metrics = VlmMetrics()
    gate = asyncio.Event()
    async with FakeVlm(gate=gate, load=(1, 3)) as vlm, VlmClient(VlmOptions(vlm.url, max_concurrency=1)) as client:
        told = asyncio.create_task(reporting.report(client, metrics))
        context = RequestContext.within("r", 30)
        reads = [asyncio.create_task(client.read(block(), context)) for _ in range(3)]
        address = vlm.url.removeprefix("http://")
        expected = {
            ("hps_vlm_blocks_in_flight", frozenset()): 1,
            ("hps_vlm_blocks_waiting", frozenset()): 2,
            ("hps_vlm_replica_up", frozenset({address})): 1,
            ("hps_vlm_replica_blocks", frozenset({address})): 1,
            ("hps_vlm_replica_queue", frozenset({address})): 3,
        }
        async with asyncio.timeout(10):
            while not expected.items() <= values(metrics.registry).items():  # noqa: ASYNC110 - told once a second
                await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*reads)
        told.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await told
