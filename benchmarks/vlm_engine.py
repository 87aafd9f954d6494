"""A model of vLLM servers on one GPU: how long each step takes, which sequences it serves. Pure; time is an argument.

Continuous batching. A request's picture is prepared by one of the server's API processes, then it waits. A step admits
waiting sequences (as many as `max_sequences` and `batched_tokens` let in), encodes their pictures, and gives each
running sequence a token. A step takes

    host    0.2 ms + 27 us a sequence   scheduling and sampling in Python, each server on its own core
    vision  25 ms a call                kernel launches from one thread: a call a picture (stock) or a step (packed)
    GPU     1.3 ms + 20 us a sequence + 13 us a prompt token, after the work that other servers gave the GPU before;
            1.07 times as much when several servers take turns without MPS, 0.77 times as much with it

and preparing a picture takes 4 ms + 50 ns a pixel.

Calibration: the page mix of 11.9 crops and 1,067 tokens a page on one H200 (16 cores), vLLM 0.26.0, random weights of
the 0.9B architecture. `python -m benchmarks.vlm_engine` prints what the model makes of these rows; they are within 9 %.

    encoder  servers  API processes  MPS  sequences  in flight   measured pages/s
    stock          1              4   no        512        256               2.59
    stock          1              4   no        512        512               2.73
    packed         1              4   no        512        256               5.31
    packed         4              1   no        256        512              10.5 to 11.0
    packed         4              1   no        256       1024              10.83
    packed         8              1   no        256       1024              10.51
    packed         4              1  yes        256        512              13.20
    packed         8              1  yes        256       1024              13.83

Not in the model: memory (KV cache and preemption), CPU cores running out, the API processes' work on a stream's tokens.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

PIXELS_A_TOKEN = 28 * 28
PROMPT_TOKENS = 16  # of text, beside the picture's
MIN_PIXELS, MAX_PIXELS = 112_896, 1_003_520


@dataclass(frozen=True, slots=True)
class Hardware:
    """Seconds; the defaults are the calibrated ones. See above."""

    prepare: float = 4e-3
    prepare_pixel: float = 50e-9
    host: float = 0.2e-3
    host_sequence: float = 27e-6
    vision_call: float = 25e-3
    gpu: float = 1.3e-3
    gpu_sequence: float = 20e-6
    gpu_prompt_token: float = 13e-6
    taking_turns: float = 1.07
    overlapping: float = 0.77

    def slowed(self, factor: float) -> "Hardware":
        """Everything `factor` times as slow."""
        times = {
            name: getattr(self, name) * factor for name in self.__slots__ if name not in ("taking_turns", "overlapping")
        }
        return Hardware(**times, taking_turns=self.taking_turns, overlapping=self.overlapping)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the GPU is used. is_packed: all pictures of a step in one call of the vision tower."""

    servers: int = 4
    api_processes: int = 1
    max_sequences: int = 256
    batched_tokens: int = 16384
    is_packed: bool = True
    has_mps: bool = True


@dataclass(eq=False, slots=True)
class Generation:
    """One request in an engine, which alone changes it. pixels: of its picture. tokens: how many it will write.
    written_before: steps of the engine before its first. is_over: it has written them all, or was given up."""

    pixels: int
    tokens: int
    written_before: int = 0
    is_running: bool = False
    is_over: bool = False

    @property
    def prompt_tokens(self) -> int:
        return PROMPT_TOKENS + min(max(self.pixels, MIN_PIXELS), MAX_PIXELS) // PIXELS_A_TOKEN


class Gpu:
    """The work of all servers, one piece after the other."""

    def __init__(self, hardware: Hardware, arrangement: Arrangement) -> None:
        factor = hardware.overlapping if arrangement.has_mps else hardware.taking_turns
        self._factor = factor if arrangement.servers > 1 else 1.0
        self._free_at = 0.0
        self.busy_s = 0.0

    def done_at(self, now: float, work: float) -> float:
        seconds = work * self._factor
        self._free_at = max(now, self._free_at) + seconds
        self.busy_s += seconds
        return self._free_at


@dataclass(frozen=True, slots=True)
class Step:
    """ends_at: when the engine has done it. finished: the sequences that are complete then."""

    ends_at: float
    finished: tuple[Generation, ...]


class Engine:
    """One server. Call `prepared_at` when a request comes, `submit` at that time, and `step` whenever the step before
    has ended; None: there is nothing to do until the next `submit`."""

    def __init__(self, hardware: Hardware, arrangement: Arrangement, gpu: Gpu) -> None:
        self._hardware = hardware
        self._arrangement = arrangement
        self._gpu = gpu
        self._api_free_at = [0.0] * arrangement.api_processes
        self._waiting: deque[Generation] = deque()
        self._steps = 0
        self._order = itertools.count()
        # By the number of the step in which they write their last token.
        self._running: list[tuple[int, int, Generation]] = []
        self._given_up = 0

    @property
    def running(self) -> int:
        return len(self._running) - self._given_up

    @property
    def waiting(self) -> int:
        return sum(not sequence.is_over for sequence in self._waiting)

    def prepared_at(self, now: float, pixels: int) -> float:
        free_at = heapq.heappop(self._api_free_at)
        ready = max(now, free_at) + self._hardware.prepare + self._hardware.prepare_pixel * pixels
        heapq.heappush(self._api_free_at, ready)
        return ready

    def submit(self, sequence: Generation) -> None:
        self._waiting.append(sequence)

    def give_up(self, sequence: Generation) -> None:
        """Its client has left: it takes part in no further step."""
        if not sequence.is_over:
            sequence.is_over = True
            self._given_up += sequence.is_running

    def written(self, sequence: Generation) -> int:
        """Tokens that it had before the step that runs."""
        return max(0, self._steps - 1 - sequence.written_before) if sequence.is_running else 0

    def step(self, now: float) -> Step | None:
        admitted = self._admitted()
        sequences = self.running
        if not sequences:
            return None
        self._steps += 1
        hardware = self._hardware
        pictures = len(admitted)
        calls = min(1, pictures) if self._arrangement.is_packed else pictures
        prompt_tokens = sum(sequence.prompt_tokens for sequence in admitted)
        work = hardware.gpu + hardware.gpu_sequence * sequences + hardware.gpu_prompt_token * prompt_tokens
        host = hardware.host + hardware.host_sequence * sequences + hardware.vision_call * calls
        return Step(self._gpu.done_at(now, work) + host, tuple(self._finished()))

    def _admitted(self) -> list[Generation]:
        admitted: list[Generation] = []
        tokens = self._arrangement.batched_tokens - self.running
        while self._waiting and self.running < self._arrangement.max_sequences:
            sequence = self._waiting[0]
            if not sequence.is_over:
                tokens -= sequence.prompt_tokens
                if tokens < 0 and admitted:
                    break
                sequence.is_running = True
                sequence.written_before = self._steps
                heapq.heappush(self._running, (self._steps + sequence.tokens, next(self._order), sequence))
                admitted.append(sequence)
            self._waiting.popleft()
        return admitted

    def _finished(self) -> Iterator[Generation]:
        while self._running and self._running[0][0] <= self._steps:
            _, _, sequence = heapq.heappop(self._running)
            if sequence.is_over:
                self._given_up -= 1
            else:
                sequence.is_over = True
                yield sequence


# --- in virtual time ---


@dataclass(slots=True)
class VirtualRun:
    """Requests of (pixels, tokens), `in_flight` at any time, each to the server with the fewest; no time passes."""

    hardware: Hardware
    arrangement: Arrangement
    _events: list[tuple[float, int, int, Generation | None]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)

    def seconds(self, requests: Iterable[tuple[int, int]], in_flight: int) -> float:
        """Until the last is answered."""
        gpu = Gpu(self.hardware, self.arrangement)
        engines = [Engine(self.hardware, self.arrangement, gpu) for _ in range(self.arrangement.servers)]
        outstanding = [0] * len(engines)
        stepping = [False] * len(engines)
        left = iter(requests)
        now = 0.0

        def send() -> None:
            request = next(left, None)
            if request is not None:
                place = min(range(len(engines)), key=outstanding.__getitem__)
                outstanding[place] += 1
                self._at(engines[place].prepared_at(now, request[0]), place, Generation(*request))

        ends: dict[int, tuple[Generation, ...]] = {}
        for _ in range(in_flight):
            send()
        while self._events:
            now, _, place, arrived = heapq.heappop(self._events)
            if arrived is not None:
                engines[place].submit(arrived)
            else:
                stepping[place] = False
                finished = ends.pop(place)
                outstanding[place] -= len(finished)
                for _ in finished:
                    send()
            if not stepping[place] and (step := engines[place].step(now)) is not None:
                stepping[place] = True
                ends[place] = step.finished
                self._at(step.ends_at, place, None)
        return now

    def _at(self, time: float, place: int, arrived: Generation | None) -> None:
        heapq.heappush(self._events, (time, next(self._order), place, arrived))


# What was measured: arrangement, requests in flight, pages/s.
MEASURED: Sequence[tuple[Arrangement, int, float]] = (
    (Arrangement(1, 4, 512, is_packed=False), 256, 2.59),
    (Arrangement(1, 4, 512, is_packed=False), 512, 2.73),
    (Arrangement(1, 4, 512), 256, 5.31),
    (Arrangement(4, has_mps=False), 512, 10.75),
    (Arrangement(4, has_mps=False), 1024, 10.83),
    (Arrangement(8, has_mps=False), 1024, 10.51),
    (Arrangement(4), 512, 13.20),
    (Arrangement(8), 1024, 13.83),
)


def _main() -> None:
    from hps.bench import page_mix

    mix = page_mix.pages(300)
    requests = [(block.size[0] * block.size[1], block.tokens) for page in mix for block in page.blocks]
    for arrangement, in_flight, measured in MEASURED:
        rate = len(mix) / VirtualRun(Hardware(), arrangement).seconds(requests, in_flight)
        print(f"{arrangement} {in_flight}: {rate:.2f} pages/s, measured {measured:.2f} ({rate / measured - 1:+.0%})")


if __name__ == "__main__":
    _main()
