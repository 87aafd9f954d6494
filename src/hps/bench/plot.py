"""Throughput and p95 against the requests in flight, as a picture."""

from pathlib import Path

from hps.bench.report import PEER, SERVICE, Report

NAMES = {SERVICE: "this service", PEER: "PaddleX's own pipeline"}


def write(report: Report, file: Path) -> None:
    """PNG or SVG, by the file's suffix. Raises ImportError without the extra `bench`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (throughput, latency) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, title in NAMES.items():
        points = sorted(
            (run.in_flight, run.pages_per_s, run.latencies[1])
            for run in report.runs
            if run.name == name and run.in_flight is not None and run.latencies is not None
        )
        if points:
            in_flight, rates, waits = zip(*points, strict=True)
            throughput.plot(in_flight, rates, marker="o", label=title)
            latency.plot(in_flight, waits, marker="o", label=title)
    if report.direct:
        limit = report.direct[-1].pages_per_s
        throughput.axhline(limit, linestyle="--", color="grey", label="the VLM servers by themselves")
    for axes, title in ((throughput, "pages/s"), (latency, "p95 of a request, seconds")):
        axes.set_title(title)
        axes.set_xlabel("requests in flight")
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file)
    pyplot.close(figure)
