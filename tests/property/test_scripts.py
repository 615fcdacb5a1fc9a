"""The scripts decide as the rules in Python do: one clock, step by step, on real servers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aiolimit import FixedWindow, SlidingLog, SlidingWindow, TokenBucket, scripts
from aiolimit.algorithms import CHARGE, PEEK, REFUND, RESET, TAKE, UP_TO, Answer, Rule, compile_policy
from aiolimit.policies import Policy

from ..support.servers import Server
from .questions import BEGIN_US, END_US, KEYS, Change, Step, period_us, policies, steps

CLOCK = str(Path(__file__).with_name("clock.lua"))
EXAMPLES = 80
SOON_US = 100_000
"""A key that is fresh this soon may be gone by the server's own clock before the test looks."""


class ScriptsOnTestClock:
    """Runs the scripts on a server at moments that the test chooses, and keeps its keys from expiring between."""

    def __init__(self, server: Server) -> None:
        self.admin: Any = server.admin
        self.shas = {name: self.admin.script_load(scripts.load(name, clock=CLOCK).text) for name in scripts.NAMES}

    def forget(self) -> None:
        """Drop every key."""
        self.admin.flushall()

    def ask(
        self, rule: Rule, now: int, op: int, keys: list[str], costs: list[int], *, resets: dict[str, int]
    ) -> tuple[list[int], dict[str, tuple[bytes | None, bytes | None, bool]]]:
        """Ask once. Gives the reply and, for each key, its value before and after, and whether its expiry is the one
        that ``resets`` says, in microseconds.
        """
        pipe = self.admin.pipeline(transaction=True)
        pipe.set("clock", now, ex=3600)
        for key in resets:
            pipe.get(key)
        # The server's own clock goes on: an expiry set just before and one set just after are the bounds.
        for key, reset_us in resets.items():
            pipe.set(f"before {key}", "", px=max(1, math.ceil(reset_us / 1000)))
            pipe.pexpiretime(f"before {key}")
        pipe.evalsha(self.shas[rule.script], len(keys), *keys, op, *rule.params, *costs)
        for key, reset_us in resets.items():
            pipe.set(f"after {key}", "", px=max(1, math.ceil(reset_us / 1000)))
            pipe.pexpiretime(f"after {key}")
            pipe.pexpiretime(key)
            pipe.get(key)
            pipe.persist(key)
        replies = pipe.execute(raise_on_error=True)[1:]
        count = len(resets)
        values, bounds, rest = replies[:count], replies[count : 3 * count], replies[3 * count + 1 :]
        seen = {}
        for index, key in enumerate(resets):
            _, latest, expires, value, _ = rest[5 * index : 5 * index + 5]
            seen[key] = (values[index], value, value is None or bounds[2 * index + 1] <= expires <= latest)
        return replies[3 * count], seen


@pytest.fixture
def on_test_clock(server: Server) -> Iterator[ScriptsOnTestClock]:
    """The scripts on an empty server."""
    ready = ScriptsOnTestClock(server)
    yield ready
    ready.forget()


def run(ready: ScriptsOnTestClock, policy: Policy, sequence: list[Step], *, backward: bool) -> None:
    """Ask both, and compare every answer, every expiry, and what a refusal leaves."""
    ready.forget()
    rule = compile_policy(policy)
    states: dict[str, Any] = {}
    now, changed = BEGIN_US, False
    for step in sequence:
        if step.change is not None:
            policy = step.change.of(policy, shortest=1)
            rule, changed = compile_policy(policy), True
        now = max(now + step.wait_us(period_us(policy), now), BEGIN_US // 2)
        if now > END_US:
            break
        keys = [key for key, _ in step.costs]
        costs = step.costs_for(rule)
        answers: list[Answer] = []
        for key, cost in zip(keys, costs, strict=True):
            states[key], answer = rule.decide(states.get(key), now, step.op, cost)
            answers.append(answer)
        resets = {key: answer[3] for key, answer in zip(keys, answers, strict=True)}
        reply, seen = ready.ask(rule, now, step.op, keys, costs, resets=resets)
        told = list(zip(*(reply[part::4] for part in range(4)), strict=True))
        assert told == answers, (policy, step, now)
        for key, (before, after, expiry_fits) in seen.items():
            if resets[key] < SOON_US:
                ready.admin.delete(key)
                states.pop(key, None)
                continue
            assert expiry_fits, (policy, step, now, key)
            assert (after is not None) == (states[key] is not None)
            moved = any(k == key and a[0] for k, a in zip(keys, answers, strict=True))
            relaid = changed and isinstance(policy, SlidingLog)  # a ring lays itself out anew under another limit
            if not moved and not backward and step.op != REFUND and not relaid:
                assert after == before, (policy, step, now, key)


server_settings = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


@server_settings
@given(policy=policies(short_windows=False), sequence=steps(change=True, keys=5))
@example(  # a look at a large log under a limit that was lowered for a moment leaves its units as they are
    policy=SlidingLog(127, 10),
    sequence=[
        Step(0, TAKE, (("a", 0.4),), Change(2, 1)),
        Step(0.1, TAKE, (("a", 0.4),), None),
        Step(0, PEEK, (("a", 0),), Change(0.1, 1)),
        Step(0.95, PEEK, (("a", 0),), Change(10, 1)),
    ],
)
def test_scripts_decide_as_the_rules_do(
    on_test_clock: ScriptsOnTestClock, policy: Policy, sequence: list[Step]
) -> None:
    """Every verb, batches with duplicates, changed limits: equal answers, the expiry that covers the state, and after a
    refusal the same bytes.
    """
    run(on_test_clock, policy, sequence, backward=False)


@pytest.mark.parametrize(("limit", "raised"), [(200, 201), (200, 250), (200, 800), (10_500, 12_000), (10_500, 40_000)])
@pytest.mark.parametrize("turned", [0.1, 0.5, 0.9])
def test_a_widened_ring_keeps_every_time(
    on_test_clock: ScriptsOnTestClock, limit: int, raised: int, turned: float
) -> None:
    """Wherever its oldest unit stood: units of ten moments, a higher limit, more units; they age one by one."""
    tenth = [Step(0.05, TAKE, (("a", 0.1),), None)] * 9
    turning = [Step(0, TAKE, (("a", turned),), None), Step(1, TAKE, (("a", 0.1),), None)]
    widened = [Step(0.01, UP_TO, (("a", share),), None) for share in (0.01, 0.3, 1)]
    ageing = [Step(0.025, PEEK, (("a", 1),), None)] * 45
    first = widened[0]._replace(change=Change((raised + 0.5) / limit, 1))
    sequence = [*turning, *tenth, first, *widened[1:], *ageing]
    run(on_test_clock, SlidingLog(limit, 60), sequence, backward=False)


@settings(server_settings, max_examples=25)
@given(limit=st.sampled_from([9_999, 10_000, 10_001, 25_000]), sequence=steps(change=True, keys=2, backward=True))
def test_large_logs_decide_as_the_rules_do(on_test_clock: ScriptsOnTestClock, limit: int, sequence: list[Step]) -> None:
    """Rings that are written, moved and widened in pieces."""
    run(on_test_clock, SlidingLog(limit, 60), sequence, backward=True)


@server_settings
@given(policy=policies(short_windows=False), sequence=steps(change=True, keys=3, backward=True))
def test_scripts_decide_as_the_rules_do_when_the_clock_steps_back(
    on_test_clock: ScriptsOnTestClock, policy: Policy, sequence: list[Step]
) -> None:
    """By a microsecond or by a minute of periods."""
    run(on_test_clock, policy, sequence, backward=True)


@server_settings
@given(policy=policies(short_windows=False), sequence=steps(keys=6, ops=(TAKE, CHARGE, REFUND)))
def test_a_batch_equals_the_sequence(on_test_clock: ScriptsOnTestClock, policy: Policy, sequence: list[Step]) -> None:
    """One call for many keys leaves and answers what one call for each does."""
    ready = on_test_clock
    ready.forget()
    rule = compile_policy(policy)
    now = BEGIN_US
    for step in sequence:
        now = min(now + step.wait_us(period_us(policy), now), END_US)
        costs = step.costs_for(rule)
        batch = [f"batch {key}" for key, _ in step.costs]
        together, _ = ready.ask(rule, now, step.op, batch, costs, resets=dict.fromkeys(batch, 10**6))
        singly: list[int] = []
        for (key, _), cost in zip(step.costs, costs, strict=True):
            reply, _ = ready.ask(rule, now, step.op, [f"single {key}"], [cost], resets={f"single {key}": 10**6})
            singly += reply
        assert together == singly
        for key in KEYS:
            one, other = ready.admin.mget(f"batch {key}", f"single {key}")
            resets = [reset for (k, _), reset in zip(step.costs, together[3::4], strict=True) if k == key]
            if resets and resets[-1] < SOON_US:
                ready.admin.delete(f"batch {key}", f"single {key}")
            elif not isinstance(policy, SlidingLog):  # whose ring has room that nobody reads
                assert one == other


@pytest.mark.parametrize("op", [TAKE, CHARGE, RESET])
def test_one_cost_stands_for_all(on_test_clock: ScriptsOnTestClock, op: int) -> None:
    """A batch of equal costs may say it once."""
    keys = list(KEYS) * 2
    for limit in (10, 1000):
        for policy in (TokenBucket(limit), FixedWindow(limit, 60), SlidingWindow(limit, 60), SlidingLog(limit, 60)):
            rule = compile_policy(policy)
            replies = []
            for costs in ([3], [3] * len(keys)):
                on_test_clock.forget()
                reply, _ = on_test_clock.ask(rule, BEGIN_US, op, keys, costs, resets={})
                replies.append(reply)
            assert replies[0] == replies[1]
            assert len(replies[0]) == 4 * len(keys)


@server_settings
@given(policy=policies(short_windows=False), data=st.data())
def test_replies_are_integers_alone(on_test_clock: ScriptsOnTestClock, policy: Policy, data: st.DataObject) -> None:
    """Four for each key, whatever is asked; in range."""
    ready = on_test_clock
    ready.forget()
    rule = compile_policy(policy)
    for op in data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)):
        reply, _ = ready.ask(rule, BEGIN_US, op, ["a", "b"], [1, min(2, rule.limit)], resets={})
        assert [type(number) for number in reply] == [int] * 8
        assert min(reply) >= 0
        assert max(reply[1::4]) <= rule.limit
