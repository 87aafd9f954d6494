"""As `throughput`, in two minutes: 48 one-page requests in flight at two simulated servers, a fifth of an H200 as fast.

Too short and too small to show the service at its limit; it shows a change.
"""

from benchmarks import simulated_vlm, throughput
from benchmarks.throughput import MODEL, settings
from hps.bench import page_mix
from hps.bench.measure import Plan

LIMITS: dict[str, float] = {}
RECORDED = ("efficiency, one-page requests", "CPU s a page, 48 in flight")


def run() -> dict[str, float]:
    mix = page_mix.pages(48)
    with simulated_vlm.running(mix, slowdown=5.0, servers=2) as urls:
        plan = Plan(
            urls,
            MODEL,
            environ=settings(len(urls)),
            mix_pages=48,
            concurrencies=(48,),
            requests=96,
            direct=(512,),
            latency_pages=2,
        )
        return throughput.figures(throughput.measured(plan))
