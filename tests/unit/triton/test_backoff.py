"""When a broken Triton is started again."""

from hps.triton.launcher import LONGEST_BACKOFF_S, STABLE_S, Backoff


def test_the_first_fault_is_repaired_at_once_and_the_next_ever_later() -> None:
    backoff = Backoff(clock=lambda: 0.0)
    backoff.succeeded()
    assert [backoff.next_delay_s() for _ in range(8)] == [0, 1, 2, 4, 8, 16, LONGEST_BACKOFF_S, LONGEST_BACKOFF_S]


def test_after_a_while_without_faults_it_starts_over() -> None:
    now = [0.0]
    backoff = Backoff(clock=lambda: now[0])
    for _ in range(4):
        backoff.next_delay_s()
    backoff.succeeded()
    now[0] = STABLE_S
    assert backoff.next_delay_s() == 0


def test_failed_starts_are_counted_in_a_row() -> None:
    backoff = Backoff(clock=lambda: 0.0)
    backoff.failed()
    backoff.failed()
    assert backoff.failed_starts == 2
    backoff.succeeded()
    assert backoff.failed_starts == 0
