"""The service's own metrics before and after a run: seconds by stage, blocks and tokens."""

from collections.abc import Mapping, Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families

from hps.metrics import STAGES

Samples = Mapping[tuple[str, ...], float]


async def scraped(urls: Sequence[str]) -> dict[tuple[str, ...], float]:
    """(name, label values in the order of label names) → value, of all parts. Raises httpx.HTTPError."""
    samples: dict[tuple[str, ...], float] = {}
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        for url in urls:
            text = (await http.get(url)).raise_for_status().text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    key = (sample.name, *(sample.labels[label] for label in sorted(sample.labels)))
                    samples[key] = samples.get(key, 0.0) + sample.value
    return samples


def grown(before: Samples, after: Samples, name: str) -> float:
    """Sum over all labels of what a counter has grown by."""
    return sum(value - before.get(key, 0.0) for key, value in after.items() if key[0] == name)


def layout_batch(before: Samples, after: Samples) -> float | None:
    """Mean pages of a batch at the layout model; None where Triton's own metrics are not among them, or none ran."""
    batches = grown(before, after, "hps_layout_batches_total")
    return grown(before, after, "hps_layout_pages_total") / batches if batches else None


def stage_seconds(before: Samples, after: Samples) -> dict[str, float]:
    """Mean seconds of each stage: of a page, and of a request for `queue`. Stages that did not occur are left out."""
    means = {}
    for stage in STAGES:
        sums, counts = ("hps_stage_seconds_sum", stage), ("hps_stage_seconds_count", stage)
        if times := after.get(counts, 0.0) - before.get(counts, 0.0):
            means[stage] = (after.get(sums, 0.0) - before.get(sums, 0.0)) / times
    return means
