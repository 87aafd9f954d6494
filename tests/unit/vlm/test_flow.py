from hps.vlm.flow import Flow, ServerLoad


def seen(flow: Flow, load: ServerLoad, ours: int, times: int = 3) -> int:
    for _ in range(times):
        flow.saw(load, ours)
    return flow.limit


def test_what_queues_for_long_is_taken_off_the_limit() -> None:
    assert seen(Flow(200), ServerLoad(running=64, waiting=136), ours=200) == 200 - (136 - 8)


def test_who_shares_a_server_gives_up_only_a_share() -> None:
    assert seen(Flow(200), ServerLoad(running=64, waiting=136), ours=100) == 100 - (136 - 8) // 2


def test_a_burst_changes_nothing() -> None:
    flow = Flow(200)
    for waiting in (150, 80, 10, 150, 70, 0):
        flow.saw(ServerLoad(50, waiting), 200)
    assert flow.limit == 200


def test_a_queue_that_keeps_a_server_busy_until_the_next_look_is_left() -> None:
    assert seen(Flow(200), ServerLoad(running=160, waiting=20), ours=180) == 200


def test_the_limit_rises_when_it_is_used_up_and_nothing_queues() -> None:
    flow = Flow(200)
    limit = seen(flow, ServerLoad(64, 136), 200)
    flow.saw(ServerLoad(60, 0), limit - 10)
    assert flow.limit == limit
    for _ in range(20):
        flow.saw(ServerLoad(flow.limit, 0), flow.limit)
    assert flow.limit == 200


def test_a_few_blocks_are_always_let_in_and_never_more_than_allowed() -> None:
    assert seen(Flow(200), ServerLoad(running=2, waiting=198), ours=2) == 4
    assert seen(Flow(2), ServerLoad(running=2, waiting=198), ours=2) == 2


def test_without_a_word_of_the_server_the_time_of_the_blocks_decides() -> None:
    flow = Flow(100)
    flow.took(seconds=30.0, ours=100)
    assert flow.limit == 80
    flow.took(seconds=15.0, ours=80)
    assert flow.limit == 80
    flow.took(seconds=2.0, ours=80)
    assert flow.limit == 100
