"""The circuit breaker, as what it is: a state machine to which time is told."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiolimit import CircuitBreaker

START = 1_000.0


def breaker(failures: int = 3, open_for: float = 1.0, **options: Any) -> CircuitBreaker:
    """One without jitter."""
    options.setdefault("jitter", lambda: 0.0)
    return CircuitBreaker(failures, open_for, **options)


def state(subject: CircuitBreaker) -> str:
    """Its state now; a type checker believes that a property stays as it was."""
    return subject.state


def fail(subject: CircuitBreaker, times: int, now: float = START) -> None:
    """So many calls that were not answered, one after the other."""
    for _ in range(times):
        subject.failed(subject.generation, now)


def succeed(subject: CircuitBreaker, times: int = 1, now: float = START, seconds: float = 0.0) -> None:
    """So many calls that were answered."""
    for _ in range(times):
        subject.succeeded(subject.generation, now, seconds)


def seen(subject: CircuitBreaker, now: float) -> tuple[object, ...]:
    """All that can be seen of it."""
    return subject.state, subject.is_closed, subject.generation, subject.retry_in(now), repr(subject)


class TestClosed:
    def test_admits_everybody(self) -> None:
        """A new one, and one that has heard of fewer failures than it takes."""
        subject = breaker()
        fail(subject, 2)
        assert (subject.state, subject.is_closed, subject.retry_in(START)) == ("closed", True, 0.0)
        assert all(subject.admits(START) for _ in range(5))

    def test_opens_at_so_many_failures_in_a_row(self) -> None:
        """Not one earlier."""
        subject = breaker()
        fail(subject, 2)
        assert subject.is_closed
        fail(subject, 1)
        assert (subject.state, subject.is_closed) == ("open", False)

    def test_a_success_ends_the_row(self) -> None:
        """What came before it does not count."""
        subject = breaker(failure_rate=None)
        for _ in range(10):
            fail(subject, 2)
            succeed(subject)
        assert subject.is_closed


class TestRate:
    def test_opens_at_the_share_of_failures(self) -> None:
        """One of two, though never two in a row."""
        subject = breaker(failure_rate=0.5, minimum=10)
        for _ in range(4):
            succeed(subject)
            fail(subject, 1)
        assert subject.is_closed
        succeed(subject)
        fail(subject, 1)
        assert state(subject) == "open"

    def test_a_smaller_share_does_not(self) -> None:
        """One of three, for long."""
        subject = breaker(failure_rate=0.5, minimum=10)
        for turn in range(300):
            succeed(subject, 2, START + turn / 100)
            fail(subject, 1, START + turn / 100)
        assert subject.is_closed

    def test_says_nothing_below_the_minimum(self) -> None:
        """All of nine calls failed, with nine too few to judge."""
        subject = breaker(failures=100, failure_rate=0.1, minimum=10)
        fail(subject, 9)
        assert subject.is_closed
        fail(subject, 1)
        assert state(subject) == "open"

    def test_forgets_what_is_older_than_the_window(self) -> None:
        """Nineteen failures, one every two seconds, are at most five in any ten."""
        subject = breaker(failures=100, failure_rate=0.5, minimum=7, window=10)
        for turn in range(19):
            fail(subject, 1, START + 2 * turn)
        assert subject.is_closed

    def test_remembers_what_is_within_it(self) -> None:
        """Ten failures spread over nine seconds."""
        subject = breaker(failures=100, failure_rate=0.5, minimum=10, window=10)
        for turn in range(10):
            assert subject.is_closed
            fail(subject, 1, START + turn)
        assert state(subject) == "open"

    def test_can_be_switched_off(self) -> None:
        """Then only the row counts."""
        subject = breaker(failures=3, failure_rate=None, minimum=1)
        for _ in range(50):
            fail(subject, 2)
            succeed(subject)
        assert subject.is_closed

    def test_starts_anew_after_an_outage(self) -> None:
        """What opened it does not count again once it has closed."""
        subject = breaker(failures=100, failure_rate=0.5, minimum=4)
        fail(subject, 4)
        now = START + subject.retry_in(START)
        assert subject.admits(now)
        succeed(subject, 1, now)
        fail(subject, 3, now)
        assert subject.is_closed

    def test_and_the_row_open_it_once(self) -> None:
        """A report that reaches both does not count as two outages."""
        subject = breaker(5, 1.0, minimum=5)
        fail(subject, 5)
        assert subject.retry_in(START) == pytest.approx(1.0)


class TestSlowCalls:
    def test_open_it_at_their_share(self) -> None:
        """They are answered, and too late all the same."""
        subject = breaker(slow_rate=0.8, slow_after=0.05, minimum=10)
        succeed(subject, 2, seconds=0.049)
        succeed(subject, 7, seconds=0.05)
        assert subject.is_closed
        succeed(subject, 1, seconds=0.05)
        assert state(subject) == "open"

    def test_do_not_matter_unless_asked_for(self) -> None:
        """By default an answer is an answer."""
        subject = breaker(minimum=1)
        succeed(subject, 100, seconds=60)
        assert subject.is_closed

    def test_close_a_half_open_one(self) -> None:
        """The probe found a server."""
        subject = breaker(slow_rate=0.8, slow_after=0.05, minimum=1)
        fail(subject, 3)
        now = START + 1
        assert subject.admits(now)
        succeed(subject, 1, now, seconds=60)
        assert subject.is_closed


class TestOpen:
    def test_admits_nobody_until_its_time_is_over(self) -> None:
        """And tells how long that is."""
        subject = breaker(3, 2.0)
        fail(subject, 3)
        assert subject.retry_in(START) == pytest.approx(2.0)
        assert not subject.admits(START + 1.999)
        assert state(subject) == "open"
        assert subject.admits(START + 2.0)
        assert state(subject) == "half_open"

    def test_stays_twice_as_long_after_each_probe_in_vain(self) -> None:
        """Up to the longest."""
        subject = breaker(3, 1.0, max_open_for=10.0)
        fail(subject, 3)
        now, stays = START, []
        for _ in range(6):
            stays.append(subject.retry_in(now))
            now += stays[-1]
            assert subject.admits(now)
            fail(subject, 1, now)
        assert stays == pytest.approx([1, 2, 4, 8, 10, 10])

    def test_starts_short_again_after_it_was_closed(self) -> None:
        """The next outage is another one."""
        subject = breaker(3, 1.0)
        fail(subject, 3)
        now = START
        for _ in range(3):
            now += subject.retry_in(now)
            assert subject.admits(now)
            fail(subject, 1, now)
        now += subject.retry_in(now)
        assert subject.admits(now)
        succeed(subject, 1, now)
        fail(subject, 3, now)
        assert subject.retry_in(now) == pytest.approx(1.0)

    def test_an_outage_of_days_changes_nothing(self) -> None:
        """However many probes were in vain, it goes on probing at the longest interval."""
        subject = breaker(3, 1.0, max_open_for=10.0)
        fail(subject, 3)
        now = START
        for _ in range(3_000):
            now += subject.retry_in(now)
            assert subject.admits(now)
            fail(subject, 1, now)
        assert state(subject) == "open"
        assert subject.retry_in(now) == pytest.approx(10.0)

    @pytest.mark.parametrize(("jitter", "stay"), [(0.0, 1.0), (0.5, 1.1), (1.0, 1.2)])
    def test_up_to_a_fifth_is_added_at_random(self, jitter: float, stay: float) -> None:
        """So that processes do not probe in step."""
        subject = breaker(jitter=lambda: jitter)
        fail(subject, 3)
        assert subject.retry_in(START) == pytest.approx(stay)

    def test_the_longest_is_never_shorter_than_the_first(self) -> None:
        """Whatever the default of the other is."""
        subject = breaker(3, 60.0)
        fail(subject, 3)
        assert subject.retry_in(START) == pytest.approx(60.0)


class TestHalfOpen:
    @staticmethod
    def probing(**options: Any) -> tuple[CircuitBreaker, float]:
        """One with a probe out, and the time."""
        subject = breaker(**options)
        fail(subject, 3)
        now = START + subject.retry_in(START)
        assert subject.admits(now)
        return subject, now

    def test_one_of_a_thousand_is_the_probe(self) -> None:
        """At the instant when the time is over."""
        subject = breaker()
        fail(subject, 3)
        now = START + subject.retry_in(START)
        assert sum(subject.admits(now) for _ in range(1_000)) == 1

    def test_a_success_closes_it(self) -> None:
        """At once and for everybody."""
        subject, now = self.probing()
        succeed(subject, 1, now)
        assert subject.is_closed
        assert subject.admits(now)

    def test_a_failure_opens_it(self) -> None:
        """For longer than before."""
        subject, now = self.probing()
        fail(subject, 1, now)
        assert state(subject) == "open"
        assert subject.retry_in(now) == pytest.approx(2.0)

    def test_it_may_take_several_successes(self) -> None:
        """One after the other, each a probe."""
        subject, now = self.probing(successes=3)
        for _ in range(2):
            succeed(subject, 1, now)
            assert state(subject) == "half_open"
            assert [subject.admits(now) for _ in range(5)] == [True, False, False, False, False]
        succeed(subject, 1, now)
        assert subject.is_closed

    def test_a_failure_among_them_starts_over(self) -> None:
        """In a row means in a row."""
        subject, now = self.probing(successes=2)
        succeed(subject, 1, now)
        assert subject.admits(now)
        fail(subject, 1, now)
        now += subject.retry_in(now)
        assert subject.admits(now)
        succeed(subject, 1, now)
        assert state(subject) == "half_open"

    def test_a_lost_probe_is_replaced(self) -> None:
        """Nobody reported; the next one goes after a while, and what the first one finds comes too late."""
        subject, now = self.probing()
        lost = subject.generation
        assert 0 < subject.retry_in(now) < math.inf
        now += subject.retry_in(now)
        assert [subject.admits(now), subject.admits(now)] == [True, False]
        before = seen(subject, now)
        subject.succeeded(lost, now)
        subject.failed(lost, now)
        assert seen(subject, now) == before
        succeed(subject, 1, now)
        assert subject.is_closed


class TestLateReports:
    @pytest.mark.parametrize("report", ["succeeded", "failed"])
    @pytest.mark.parametrize("state", ["open", "half_open", "closed again"])
    def test_change_nothing(self, state: str, report: str) -> None:
        """They belong to a state that is over."""
        subject = breaker(1)
        old = subject.generation
        fail(subject, 1)
        now = START
        if state != "open":
            now += subject.retry_in(now)
            assert subject.admits(now)
        if state == "closed again":
            succeed(subject, 1, now)
        before = seen(subject, now)
        for _ in range(50):
            getattr(subject, report)(old, now)
        assert seen(subject, now) == before

    @pytest.mark.parametrize("act", [CircuitBreaker.force_open, CircuitBreaker.disable, CircuitBreaker.reset])
    def test_of_before_a_manual_change_neither(self, act: Callable[[CircuitBreaker], None]) -> None:
        """A reset is a new life even if it was closed before."""
        subject = breaker(1)
        old = subject.generation
        act(subject)
        before = seen(subject, START)
        subject.failed(old, START)
        assert seen(subject, START) == before


class TestByHand:
    def test_forced_open_admits_nobody_ever(self) -> None:
        """Whatever is reported and however long it takes."""
        subject = breaker()
        subject.force_open()
        succeed(subject, 10)
        assert state(subject) == "open"
        assert not subject.admits(START + 1e9)
        assert subject.retry_in(START) == math.inf

    def test_disabled_admits_everybody_always(self) -> None:
        """Whatever fails."""
        subject = breaker()
        subject.disable()
        fail(subject, 1_000)
        assert subject.is_closed
        assert subject.admits(START)

    @pytest.mark.parametrize("act", [CircuitBreaker.force_open, CircuitBreaker.disable])
    def test_reset_gives_it_back_to_itself(self, act: Callable[[CircuitBreaker], None]) -> None:
        """Closed, and opening again when enough fails."""
        subject = breaker()
        act(subject)
        subject.reset()
        assert (subject.state, subject.retry_in(START)) == ("closed", 0.0)
        fail(subject, 2)
        assert subject.is_closed
        fail(subject, 1)
        assert state(subject) == "open"
        assert subject.retry_in(START) == pytest.approx(1.0)

    def test_reset_forgets_failures(self) -> None:
        """Those of the row and those of the window."""
        subject = breaker(failure_rate=0.5, minimum=3)
        fail(subject, 2)
        subject.reset()
        fail(subject, 2)
        assert subject.is_closed

    def test_the_last_one_holds(self) -> None:
        """Forced open, then disabled, then forced open."""
        subject = breaker()
        subject.force_open()
        subject.disable()
        assert subject.admits(START)
        subject.force_open()
        assert not subject.admits(START + 100)


class TestTransitions:
    def test_are_told_once_each(self) -> None:
        """With the state before and after, when it is already the new one."""
        subject = breaker()
        told: list[tuple[str, str, str]] = []
        subject.on_transition = lambda old, new: told.append((old, new, subject.state))
        fail(subject, 3)
        now = START + 1
        assert subject.admits(now)
        fail(subject, 1, now)
        now += 2
        assert subject.admits(now)
        succeed(subject, 1, now)
        assert told == [
            ("closed", "open", "open"),
            ("open", "half_open", "half_open"),
            ("half_open", "open", "open"),
            ("open", "half_open", "half_open"),
            ("half_open", "closed", "closed"),
        ]

    def test_to_the_same_state_are_none(self) -> None:
        """Resetting a closed one, forcing an open one."""
        subject = breaker()
        told: list[tuple[str, str]] = []
        subject.on_transition = lambda old, new: told.append((old, new))
        subject.reset()
        subject.disable()
        subject.force_open()
        subject.force_open()
        assert told == [("closed", "open")]

    def test_who_hears_of_one_may_act_on_it(self) -> None:
        """A reset out of the hearing of an opening leaves it closed."""
        subject = breaker()
        subject.on_transition = lambda _, new: subject.reset() if new == "open" else None
        fail(subject, 3)
        assert subject.is_closed
        assert subject.retry_in(START) == 0.0


def test_its_text_tells_the_state() -> None:
    """And what led to it, in one line."""
    subject = breaker()
    fail(subject, 2)
    assert repr(subject) == "<CircuitBreaker closed failures=2/3>"
    fail(subject, 1)
    assert repr(subject) == "<CircuitBreaker open failures=3/3>"
    assert subject.admits(START + 1)
    assert repr(subject).startswith("<CircuitBreaker half_open ")
    subject.force_open()
    assert repr(subject).startswith("<CircuitBreaker open forced ")
    subject.disable()
    assert repr(subject) == "<CircuitBreaker closed disabled failures=0/3>"


def test_a_copy_has_the_settings_and_not_the_state() -> None:
    """For a second server."""
    subject = breaker(
        2, 3.0, max_open_for=5.0, failure_rate=None, slow_rate=1.0, slow_after=0.5, minimum=4, successes=2
    )
    subject.on_transition = lambda *_: None
    subject.force_open()
    copy = subject.copy()
    assert state(copy) == "closed"
    assert copy.on_transition is None
    fail(copy, 2)
    assert copy.retry_in(START) == pytest.approx(3.0)
    assert copy.admits(START + 3)
    fail(copy, 1, START + 3)
    assert copy.retry_in(START + 3) == pytest.approx(5.0)
    now = START + 8
    for _ in range(2):
        assert copy.admits(now)
        assert state(copy) == "half_open"
        succeed(copy, 1, now)
    assert state(copy) == "closed"
    succeed(copy, 4, now, seconds=0.5)
    assert state(copy) == "open"


WRONG: list[tuple[dict[str, Any], str]] = [
    *[({name: value}, name) for name in ("failures", "minimum", "successes") for value in (0, -1, 1.5, True, "3")],
    *[
        ({name: value}, name)
        for name in ("open_for", "max_open_for", "window")
        for value in (0, -1, math.inf, math.nan, True, "1")
    ],
    *[({"failure_rate": value}, "failure_rate") for value in (0, -0.5, 1.01, math.nan)],
    *[({"slow_rate": value, "slow_after": 1}, "slow_rate") for value in (0, 1.01, math.nan)],
    ({"slow_rate": 0.5}, "slow_after"),
    ({"slow_after": 0.5}, "slow_rate"),
    *[({"slow_rate": 0.5, "slow_after": value}, "slow_after") for value in (-1, math.nan)],
]


@pytest.mark.parametrize(("options", "named"), WRONG, ids=str)
def test_a_wrong_argument_is_named(options: dict[str, Any], named: str) -> None:
    """When it is made, not in an outage."""
    with pytest.raises(ValueError, match=re.escape(named)):
        CircuitBreaker(**options)


class Life(RuleBasedStateMachine):
    """Callers ask, are answered late, early or never, and somebody turns the switches."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.out: list[int] = []
        self.moves: list[tuple[str, str]] = []
        self.switch = ""

    @initialize(
        failures=st.integers(1, 4),
        open_for=st.floats(0.1, 5),
        max_open_for=st.floats(0.1, 20),
        failure_rate=st.none() | st.floats(0.1, 1),
        slow_rate=st.none() | st.floats(0.1, 1),
        minimum=st.integers(1, 8),
        successes=st.integers(1, 3),
        jitter=st.floats(0, 1),
    )
    def make(self, jitter: float, slow_rate: float | None, **options: Any) -> None:
        """Any settings."""
        self.shortest, self.longest = options["open_for"], max(options["open_for"], options["max_open_for"]) * 1.2
        self.failures = options["failures"]
        slow_after = None if slow_rate is None else 0.05
        self.subject = CircuitBreaker(slow_rate=slow_rate, slow_after=slow_after, jitter=lambda: jitter, **options)
        self.subject.on_transition = lambda old, new: self.moves.append((old, new))

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    @rule()
    def wait_for_the_probe(self) -> None:
        """Exactly as long as it says."""
        if self.subject.retry_in(self.now) < math.inf:
            self.now += self.subject.retry_in(self.now)
            assert self.subject.admits(self.now)
            self.out.append(self.subject.generation)

    @rule(callers=st.integers(1, 20))
    def ask(self, callers: int) -> None:
        """Several at once."""
        was = state(self.subject)
        due = self.subject.retry_in(self.now) <= 0
        admitted = 0
        for _ in range(callers):
            if self.subject.admits(self.now):
                admitted += 1
                self.out.append(self.subject.generation)
        expected = callers if was == "closed" else 1 if due else 0
        assert admitted == expected
        if admitted and was != "closed":
            assert state(self.subject) == "half_open"

    @precondition(lambda self: self.out)
    @rule(data=st.data(), good=st.booleans(), seconds=st.floats(0, 0.2))
    def hear(self, data: st.DataObject, good: bool, seconds: float) -> None:
        """One of those who were sent is heard of."""
        generation = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        late = generation != self.subject.generation
        before, moves = seen(self.subject, self.now), len(self.moves)
        if good:
            self.subject.succeeded(generation, self.now, seconds)
        else:
            self.subject.failed(generation, self.now)
        if late or self.switch:
            assert seen(self.subject, self.now) == before
        assert len(self.moves) - moves <= 1
        if not late and not good and before[0] == "half_open" and not self.switch:
            assert state(self.subject) == "open"
        if state(self.subject) == "open" and before[0] != "open":
            assert self.shortest <= self.subject.retry_in(self.now) * (1 + 1e-9)
            assert self.subject.retry_in(self.now) <= self.longest * (1 + 1e-9)

    @rule()
    def outage(self) -> None:
        """As many failures in a row as it takes."""
        was_closed = self.subject.is_closed and not self.switch
        fail(self.subject, self.failures, self.now)
        assert not was_closed or state(self.subject) == "open"

    @rule(act=st.sampled_from(["force_open", "disable", "reset"]))
    def turn(self, act: str) -> None:
        """By hand."""
        getattr(self.subject, act)()
        self.switch = "" if act == "reset" else act
        assert state(self.subject) == ("open" if act == "force_open" else "closed")

    @invariant()
    def at_most_one_probe_is_out(self) -> None:
        """One whose report would be heard, that is."""
        if hasattr(self, "subject") and state(self.subject) == "half_open":
            assert self.out.count(self.subject.generation) <= 1

    @invariant()
    def it_can_be_waited_for(self) -> None:
        """Nothing but the switch keeps it from probing for longer than the longest time."""
        if hasattr(self, "subject"):
            assert self.subject.is_closed == (state(self.subject) == "closed")
            wait = self.subject.retry_in(self.now)
            assert (wait == math.inf) == (self.switch == "force_open")
            assert wait == math.inf or 0 <= wait <= self.longest * (1 + 1e-9)

    @invariant()
    def transitions_join(self) -> None:
        """Each starts where the one before it ended, and none goes nowhere."""
        assert all(old != new for old, new in self.moves)
        assert all(first[1] == second[0] for first, second in zip(self.moves, self.moves[1:], strict=False))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
