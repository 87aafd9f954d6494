"""`hps bench` and `hps tune`: options in, report out."""

import argparse
import asyncio
import json
import sys
from dataclasses import replace

import httpx

from hps import settings as hps_settings
from hps.bench import measure, plot, report, sweep, tune
from hps.bench.measure import Plan
from hps.bench.tune import Means
from hps.embedded.part import StartFailed


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Of `hps bench`. Raises ValueError for what makes no sense."""
    return replace(
        _target(arguments),
        concurrencies=_numbers(arguments.concurrency),
        rates=tuple(float(rate) for rate in filter(None, arguments.rate.split(","))),
        rate_seconds=arguments.rate_seconds,
        direct=_numbers(arguments.direct),
        latency_pages=0 if arguments.pdf_pages else arguments.latency_pages,
        paddlex=arguments.paddlex_python.absolute() if arguments.peer else None,
        paddlex_concurrencies=_numbers(arguments.paddlex_concurrency),
        paddlex_requests=arguments.paddlex_requests,
    )


def _target(arguments: argparse.Namespace) -> Plan:
    if arguments.corpus is not None and arguments.url is None:
        raise ValueError("--corpus needs --url: a service started here knows the boxes of the built-in pages only")
    settings = hps_settings.load()
    return Plan(
        vlm_urls=tuple(arguments.vlm.split(",")),
        model=arguments.model or hps_settings.vlm_model(settings),
        url=arguments.url,
        metrics=tuple(filter(None, arguments.metrics.split(","))),
        environ=dict(_pair(text) for text in arguments.set),
        api_key=arguments.api_key,
        vlm_api_key=arguments.vlm_api_key,
        folder=arguments.corpus,
        mix_pages=arguments.mix_pages,
        pdf_pages=arguments.pdf_pages,
        options={name: json.loads(value) for name, value in map(_pair, arguments.option)},
        requests=arguments.requests,
    )


def run_tune(arguments: argparse.Namespace) -> int:
    try:
        if (arguments.restart is None) != (arguments.url is None):
            raise ValueError("--restart and --url belong together: the command starts the service of that address anew")
        plan = replace(_target(arguments), concurrencies=(arguments.in_flight,))
        means = Means(arguments.restart, arguments.vlm_command)
        leader, trials = asyncio.run(tune.tuned(plan, means, lambda line: print(line, file=sys.stderr, flush=True)))
    except (StartFailed, ValueError, FileNotFoundError, httpx.HTTPError) as error:
        print(f"hps tune: {error}", file=sys.stderr)
        return 1
    text = "\n".join(sweep.env_lines(leader, trials, tune.common(plan))) + "\n"
    print(text, end="")
    if arguments.env is not None:
        arguments.env.write_text(text)
    return 0


def run_bench(arguments: argparse.Namespace) -> int:
    try:
        plan = plan_of(arguments)
        found = asyncio.run(measure.measured(plan, lambda line: print(line, flush=True)))
    except (StartFailed, ValueError, FileNotFoundError, httpx.HTTPError) as error:
        print(f"hps bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(report.as_json(found))
    if arguments.plot:
        plot.write(found, arguments.plot)
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in filter(None, text.split(",")))


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
