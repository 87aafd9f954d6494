"""The short form of `make fuzz`: no crash, no status 500, no hang."""

from tests.fuzz import api, decoders, mutations


async def test_mutated_files_are_decoded_or_refused() -> None:
    outcome = await decoders.run(250, seed=7)
    assert outcome.unexpected == []
    assert outcome.hung == []
    assert outcome.inputs == 250
    assert outcome.decoded > 20
    assert outcome.refused.total() > 20


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert [each.data for each in mutations.inputs(20, 3)] == [each.data for each in mutations.inputs(20, 3)]
    assert len({each.data for each in mutations.inputs(20, 3)} | {each.data for each in mutations.inputs(20, 4)}) > 35


def test_requests_of_every_shape_get_an_answer_of_ours() -> None:
    outcome = api.run(25, seed=7)
    assert outcome.ok, outcome.output + outcome.service_log
    assert outcome.cases > 100
    assert "Traceback" not in outcome.service_log
