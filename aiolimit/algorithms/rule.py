"""What the rules have in common. They are pure arithmetic in integer microseconds, here and in Lua in ``lua/``.

Theory of operation. A *rule* is a policy compiled to integers. Its one function is::

    decide(state, now_us, op, cost) -> (state, (granted, remaining, retry_us, reset_us))

``state`` is what is stored for one key, None for a key that is not there. Every rule holds to this:

- What is admitted is charged in the same step; a refusal gives back the very state it was given.
- ``retry_us`` is 0 when the answer is yes, else the shortest wait after which it would be.
- Elapsed time is never negative. A stored time ahead of ``now`` means that the clock was set back. Within
  `clock_tolerance` the key's time stands still until the clock has caught up; beyond it the units in use are taken as
  charged now. That is the one case in which a refusal changes the state, and it has to: nobody would be admitted before
  the old time came round again.
- The units in use outlive a change of the policy's numbers.
- Nothing but `CHARGE` takes a key beyond its limit, and `REFUND` makes no key: it gives back what is in use, no more.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

TAKE, UP_TO, PEEK, CHARGE, REFUND, RESET = range(6)
"""What is asked: all of ``cost`` or nothing; as much as fits; would it fit; charge it anyway; give it back; forget the
key. `RESET` is for backends alone: no rule is needed for it."""
OPS = 6
"""How many there are."""
ONE_CALLER = 10
"""Added to the verb of a script call whose keys one caller asked for: it gets all answers or, if one is amiss, none."""

Answer: TypeAlias = tuple[int, int, int, int]
"""``(granted, remaining, retry_us, reset_us)``; granted when ``retry_us`` is 0."""

MAX_EXACT = 2**53 - 1
"""The largest integer that a Lua number holds exactly. A debt that would pass it stays there."""
MAX_WAIT_US = 2**52
"""The longest wait that is told, in microseconds: 142 years."""
MAX_SKEW_US = 1_000_000
"""How far ahead of the clock a stored time may be and still pass for jitter between clocks."""


class Rule(Protocol):
    """A policy compiled to integers."""

    @property
    def script(self) -> str:
        """The name of its Lua twin."""
        ...

    @property
    def params(self) -> tuple[int, ...]:
        """The integers that the script is given."""
        ...

    @property
    def limit(self) -> int:
        """The most units admitted from fresh."""
        ...

    def decide(self, state: Any, now: int, op: int, cost: int) -> tuple[Any, Answer]:
        """Answer one question; see the theory of operation above."""
        ...


def clock_tolerance(period_us: int) -> int:
    """How far ahead of now, in microseconds, a stored time may be before the clock counts as set back."""
    return min(MAX_SKEW_US, period_us)


def moved_units(op: int, cost: int, free: int) -> int:
    """How many units the question moves when ``free`` fit: negative for a refund."""
    if op == TAKE:
        return cost if cost <= free else 0
    if op == UP_TO:
        return min(cost, free)
    if op == CHARGE:
        return cost
    return -cost if op == REFUND else 0


def unmet_units(op: int, cost: int, free: int) -> int:
    """The units to wait for when ``free`` fit: 0 when the answer is yes."""
    if op in {TAKE, PEEK}:
        return cost if cost > free else 0
    return 1 if op == UP_TO and cost > 0 and free == 0 else 0
