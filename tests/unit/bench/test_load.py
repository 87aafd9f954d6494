import pytest

from hps.bench import load
from hps.bench.documents import Document
from hps.bench.load import NO_ANSWER, Service
from hps.ports import free_port
from tests.unit.bench.services import FakeService

DOCUMENTS = [Document("one", 1, b"{}"), Document("other", 1, b"{}")]


async def test_a_closed_loop_keeps_so_many_in_flight_and_counts_what_came() -> None:
    async with FakeService(delay_s=0.02, blocks=(12, 11)) as fake, Service(fake.url) as service:
        outcomes = await load.closed_loop(service, DOCUMENTS, in_flight=4, requests=20)
    assert fake.peak == 4
    assert len(outcomes) == fake.requests == 20
    assert {(outcome.status, outcome.pages, outcome.blocks) for outcome in outcomes} == {(200, 2, 23)}
    assert all(outcome.seconds >= 0.02 for outcome in outcomes)


async def test_an_open_loop_sends_whether_answers_come_or_not() -> None:
    async with FakeService(delay_s=0.5) as fake, Service(fake.url) as service:
        outcomes = await load.open_loop(service, DOCUMENTS, pages_per_s=50, seconds=0.4, seed=1)
    assert fake.peak == len(outcomes)
    assert 8 <= len(outcomes) <= 40
    starts = [outcome.started for outcome in outcomes]
    assert starts == sorted(starts)


async def test_pages_not_requests_make_the_rate() -> None:
    long = [Document("long", 10, b"{}")]
    async with FakeService() as fake, Service(fake.url) as service:
        outcomes = await load.open_loop(service, long, pages_per_s=100, seconds=1, seed=1)
    assert 2 <= len(outcomes) <= 30


@pytest.mark.parametrize("status", [503, 500])
async def test_refused_requests_are_outcomes(status: int) -> None:
    async with FakeService(status=status) as fake, Service(fake.url) as service:
        (outcome,) = await load.closed_loop(service, DOCUMENTS, in_flight=1, requests=1)
    assert (outcome.status, outcome.pages, outcome.is_success) == (status, 0, False)


async def test_nobody_at_the_address() -> None:
    async with Service(f"http://127.0.0.1:{free_port()}") as service:
        (outcome,) = await load.closed_loop(service, DOCUMENTS, in_flight=1, requests=1)
    assert outcome.status == NO_ANSWER
