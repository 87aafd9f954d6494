from typing import Any

import pytest

from hps.bench import counters
from tests.fakes.server import Server

TEXT = """# TYPE hps_pages_total counter
hps_pages_total {pages}
# TYPE hps_vlm_tokens_total counter
hps_vlm_tokens_total{{kind="ocr"}} {tokens}
hps_vlm_tokens_total{{kind="table"}} 100
# TYPE hps_stage_seconds histogram
hps_stage_seconds_bucket{{stage="vlm",le="+Inf"}} {pages}
hps_stage_seconds_count{{stage="vlm"}} {pages}
hps_stage_seconds_sum{{stage="vlm"}} {seconds}
# TYPE hps_layout_batches_total counter
hps_layout_batches_total{{model="layout-detection"}} {batches}
hps_layout_pages_total{{model="layout-detection"}} {pages}
"""


async def test_what_a_run_added_over_all_parts() -> None:
    values = {"pages": 10, "tokens": 500, "seconds": 20, "batches": 8}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": TEXT.format(**values).encode()})

    async with Server(app) as server:
        urls = [f"{server.url}/metrics", f"{server.url}/others"]
        before = await counters.scraped(urls)
        values |= {"pages": 14, "tokens": 800, "seconds": 21, "batches": 9}
        after = await counters.scraped(urls)
    assert counters.grown(before, after, "hps_vlm_tokens_total") == 2 * 300
    assert counters.grown(before, after, "hps_pages_total") == 2 * 4
    assert counters.stage_seconds(before, after) == {"vlm": pytest.approx(0.25)}
    assert counters.stage_seconds(after, after) == {}
    assert counters.layout_batch(before, after) == 4
    assert counters.layout_batch(after, after) is None
