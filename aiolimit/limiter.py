"""The limiter: the story of one call."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from . import override
from .algorithms import CHARGE, PEEK, REFUND, RESET, TAKE, UP_TO
from .arguments import checked_deadline, checked_failure, checked_units, made_backend, one_policy
from .decision import Decision
from .errors import BackendClosed, BackendError, BackendOverloaded, BackendUnavailable, CircuitOpen, PolicyError
from .fallback import Fallback
from .keys import checked_name, key_bytes
from .waiting import Acquisition, Line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from .algorithms import Answer
    from .arguments import Failure, Policies
    from .backends import Answers, Backend
    from .keys import Key

# The constructor of a named tuple takes three times as long.
_new: Callable[[type[Decision], tuple[object, ...]], Decision] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_log = logging.getLogger(__name__)

_CHUNK = 2_000
_PIECE = 100
_CLOSED_RETRY_S = 1.0
"""What a refusal without the store tells to wait: there is nothing to compute it from."""


class Limiter:
    """Decides for the callers of one policy, each known by a key.

    Made without I/O, at import time if you like, and used from any event loop.

    Args:
        policy: A policy, or policy text such as ``"100/minute burst 20"``.
        backend: Where the counts are kept: a `RedisBackend`, a `MemoryBackend`, or a URL that makes one. None
            keeps them in this process, in a backend of this limiter's own.
        name: Separates the keys of limiters that share a backend. Limiters of one name and kind of policy share them.
        failure: What to decide when the store does not answer within the backend's deadline: ``"open"`` admits,
            ``"closed"`` refuses, ``"local"`` decides in this process at a ``share`` of the limit. The decision's
            ``source`` says so. Errors that waiting does not mend always raise.
        share: The part of the limit that is this process's under ``failure="local"``: one divided by the number of
            processes, if they should together stay within it.
        group: Gives the text that decides where in the store a key lies; the key itself unless given. For keys
            that must lie together.

    Raises:
        PolicyError: When the policy text cannot be read, or there is not exactly one policy.
        ValueError: When a URL or another value is wrong.
        TypeError: When an argument is of another type.
    """

    def __init__(
        self,
        policy: Policies,
        backend: Backend | str | None = None,
        *,
        name: str = "default",
        failure: Failure = "open",
        share: float = 1.0,
        group: Callable[[Key], Key] | None = None,
    ) -> None:
        if group is not None and not callable(group):
            raise TypeError(f"group must be a callable that gives a key's group, or None, not {group!r}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share must be more than 0 and at most 1, not {share!r}")
        self.policy = one_policy(policy)
        self.name = checked_name("name", name)
        self._owns_backend = backend is None or isinstance(backend, str)
        self.backend: Backend = made_backend(backend)
        self._failure = checked_failure(failure)
        self._share = share
        self._fallback = Fallback(self.policy, share) if failure == "local" else None
        self._settling: asyncio.Task[None] | None = None
        self._limit = self.policy.limit
        self._source = self.backend.source
        self._ask, self._ask_many, self._decided_without = self.backend.place(name, self.policy, group)
        self._line = Line()

    def __repr__(self) -> str:
        return f"<Limiter {self.name!r} {self.policy} on {self.backend!r}>"

    async def try_acquire(
        self, key: Key, cost: int = 1, *, deadline: float | None = None, failure: Failure | None = None
    ) -> Decision:
        """Decide now whether ``cost`` units may go, and charge them if so. Never waits for its turn; see `acquire`.

        Args:
            key: Who asks: text or bytes, not empty.
            cost: Units, a whole number; 0 only looks, as `peek` does.
            deadline: Seconds to wait for the store at most, for this call; the backend's unless given.
            failure: What to decide without the store, for this call; the limiter's unless given.

        Raises:
            PolicyError: When the cost is more than the policy can ever admit.
            TypeError, ValueError: When the key or the cost is not valid.
            BackendError: When the store refuses in a way that waiting does not mend.
        """
        if type(cost) is not int or not 0 <= cost <= self._limit:
            self._check_cost(cost)
        if failure is not None:
            checked_failure(failure)
        if override.forced is not None:
            return self._forced(key, cost, override.forced)
        try:
            if deadline is None:
                answer = self._ask(TAKE, key, cost)
            else:
                answer = self._ask(TAKE, key, cost, checked_deadline(deadline))
            if type(answer) is not tuple:
                answer = await cast("Awaitable[Answer]", answer)
        except BackendUnavailable as error:
            return self._without_store(TAKE, key, cost, error, failure)
        if self._fallback is not None:
            self._tell_fallback(self._fallback, key, answer[0])
        return self._decision(key, cost, answer)

    def acquire(
        self, key: Key, cost: int = 1, *, timeout: float | None = None, failure: Failure | None = None
    ) -> Acquisition:
        """Wait for its turn, then charge ``cost`` units. `try_acquire` is the one that never waits.

        Await it for the decision, or enter it: ``async with limiter.acquire(key) as decision``. Callers of one key are
        served in the order in which they came to this limiter; waiting on one key holds up no other.

        Args:
            key: Who asks: text or bytes, not empty.
            cost: Units, a whole number.
            timeout: The most seconds to wait; None waits as long as it takes, 0 decides now.
            failure: What to decide without the store, for this call; the limiter's unless given.

        Raises:
            RateLimitExceeded: When it cannot be in time, at once if that is known at once.
            PolicyError, TypeError, ValueError, BackendError: As `try_acquire`.
        """
        self._check_cost(cost)
        if failure is not None:
            checked_failure(failure)
        return Acquisition(
            self._line, self.try_acquire, self._refusal, key=key, cost=cost, timeout=timeout, failure=failure
        )

    async def try_acquire_many(
        self, items: Iterable[Key | tuple[Key, int]], *, failure: Failure | None = None
    ) -> list[Decision]:
        """Decide now for many at once, in one script call for each few hundred. Never waits.

        Args:
            items: Keys, or pairs of a key and its cost. A key that stands twice sees its own earlier spend.
            failure: What to decide without the store, for this call; the limiter's unless given.

        Returns:
            One decision for each item, in their order.

        Raises:
            PolicyError, TypeError, ValueError, BackendError: As `try_acquire`, before anything is charged.
        """
        keys: list[Key] = []
        costs: list[int] = []
        if failure is not None:
            checked_failure(failure)
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise TypeError(f"items must be several keys, or pairs of a key and a cost, not one {type(items).__name__}")
        for item in items:
            if isinstance(item, tuple) and len(item) != 2:
                raise ValueError(f"each item must be a key or a tuple of a key and its cost, not {len(item)} values")
            key, cost = item if isinstance(item, tuple) else (item, 1)
            self._check_cost(cost)
            keys.append(key)
            costs.append(cost)
        decisions: list[Decision] = []
        for key in keys:
            key_bytes(key)
        if override.forced is not None:
            return [self._forced(key, cost, override.forced) for key, cost in zip(keys, costs, strict=True)]
        for start in range(0, len(keys), _CHUNK):
            end = start + _CHUNK
            decisions += await self._decide_chunk(keys[start:end], costs[start:end], failure)
        return decisions

    async def acquire_up_to(self, key: Key, cost: int) -> Decision:
        """Charge as many whole units of ``cost`` as fit now. Never waits; ``decision.granted`` says how many.

        Args:
            key: Who asks.
            cost: The most units wanted; may be more than the limit.
        """
        checked_units(cost)
        return await self._decide(UP_TO, key, cost)

    async def peek(self, key: Key, cost: int = 1) -> Decision:
        """Tell what `try_acquire` would decide. Spends nothing and creates nothing."""
        self._check_cost(cost)
        return await self._decide(PEEK, key, cost)

    async def refund(self, key: Key, cost: int = 1) -> Decision:
        """Give back ``cost`` units that were charged and not used.

        Never makes a key fresher than fresh, and creates nothing. A sliding log gives back its oldest units first, so
        that what stays counts at least as long as it should.
        """
        checked_units(cost)
        return await self._decide(REFUND, key, cost)

    async def charge(self, key: Key, cost: int = 1) -> Decision:
        """Charge ``cost`` units whether they fit or not: what was really used, known afterwards.

        Beyond the limit the key is in debt: nothing is admitted until the debt is paid off by time. A debt is kept
        exactly up to seven times the limit at least, and beyond that counts as no more.
        """
        checked_units(cost)
        return await self._decide(CHARGE, key, cost)

    async def reset(self, key: Key) -> Decision:
        """Forget the key: it is fresh again."""
        decision = await self._decide(RESET, key, 0)
        return decision._replace(remaining=self._limit) if decision.source == self._source else decision

    async def aclose(self) -> None:
        """Close the backend, if this limiter made it from a URL or for itself."""
        if self._owns_backend:
            await self.backend.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _decide(self, op: int, key: Key, cost: int) -> Decision:
        """One question of any kind."""
        if override.forced is not None:
            return self._forced(key, cost, override.forced)
        asked = min(cost, self._limit) if op == UP_TO else cost
        try:
            answer = self._ask(op, key, asked)
            if not isinstance(answer, tuple):
                answer = await answer
        except BackendUnavailable as error:
            return self._without_store(op, key, cost, error)
        if self._fallback is not None:
            self._tell_fallback(self._fallback, key, answer[0])
        return self._decision(key, cost, answer)

    async def _decide_chunk(self, keys: list[Key], costs: list[int], failure: Failure | None) -> list[Decision]:
        try:
            asked = self._ask_many(TAKE, keys, costs)
            answers: Answers = asked if isinstance(asked, list) else await asked
        except BackendUnavailable as error:  # none of them was asked
            answers = cast("Answers", [error] * len(keys))
        decisions: list[Decision] = []
        for key, cost, answer in zip(keys, costs, answers, strict=True):
            if isinstance(answer, BackendUnavailable):
                decisions.append(self._without_store(TAKE, key, cost, answer, failure))
                continue
            if self._fallback is not None:
                self._tell_fallback(self._fallback, key, answer[0])
            decisions.append(self._decision(key, cost, answer))
        return decisions

    def _decision(self, key: Key, cost: int, answer: Answer) -> Decision:
        granted, remaining, retry_us, reset_us = answer
        allowed = retry_us == 0
        retry_after, reset_after = retry_us / 1_000_000, reset_us / 1_000_000
        limit, source, policy = self._limit, self._source, self.policy
        return _new(Decision, (allowed, key, cost, granted, limit, remaining, retry_after, reset_after, source, policy))

    def _without_store(
        self, op: int, key: Key, cost: int, error: BackendUnavailable, failure: Failure | None = None
    ) -> Decision:
        """What the failure policy says."""
        chosen = failure or self._failure
        _log.debug("%s, so the failure policy decides: %s", error, chosen)
        if chosen == "local":
            if self._fallback is None:
                self._fallback = Fallback(self.policy, self._share)
            decision = self._decision(key, cost, self._fallback.decide(op, key, cost))._replace(source="fallback")
        elif chosen == "closed":
            decision = self._refusal(key, cost, _CLOSED_RETRY_S)._replace(source="fail_closed")
        else:
            granted = min(cost, self._limit) if op in {TAKE, UP_TO} else 0
            decision = self._decision(key, cost, (granted, self._limit, 0, 0))._replace(source="fail_open")
        self._decided_without(decision.source, 1, error)
        return decision

    def _tell_fallback(self, fallback: Fallback, key: Key, granted: int) -> None:
        """The store answered: note what it admitted, and tell it what was admitted while it was away."""
        fallback.admitted(key, granted)
        if fallback.owes and self._settling is None:
            owed = list(fallback.take_owed().items())
            # The first piece is asked for now: a task of its own would begin when the backend may have been closed.
            first = self._charges(fallback, owed[:_PIECE])
            settle = self._settle(fallback, first, owed[_PIECE:])
            self._settling = asyncio.get_running_loop().create_task(settle, name="aiolimit settle")

    async def _settle(self, fallback: Fallback, asked: list[Awaitable[Answer]], owed: list[tuple[Key, int]]) -> None:
        """Charge to the store what was admitted without it: in pieces, and nothing that was sent a second time."""
        try:
            while True:
                # An error but these: it may have been charged, or never can be.
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                if not owed or any(
                    isinstance(one, BackendClosed | BackendOverloaded | CircuitOpen) for one in outcomes
                ):
                    return
                piece, owed = owed[:_PIECE], owed[_PIECE:]
                asked = self._charges(fallback, piece)
        finally:
            for key, units in owed:
                fallback.owe(key, units)
            self._settling = None

    def _charges(self, fallback: Fallback, piece: list[tuple[Key, int]]) -> list[Awaitable[Answer]]:
        """Ask for these charges; what is turned away stays owed."""
        asked: list[Awaitable[Answer]] = []
        for key, units in piece:
            try:
                answer = self._ask(CHARGE, key, units)
            except (CircuitOpen, BackendOverloaded):
                fallback.owe(key, units)
            except BackendError:
                continue  # it may have been charged, or never can be
            else:
                if not isinstance(answer, tuple):
                    asked.append(answer)
        return asked

    def _forced(self, key: Key, cost: int, answer: bool) -> Decision:  # noqa: FBT001  (it is the answer)
        """What the switch over all limiters says."""
        key_bytes(key)
        wait_us = 0 if answer else round(_CLOSED_RETRY_S * 1_000_000)
        units = min(cost, self._limit) if answer else 0
        decision = self._decision(key, cost, (units, self._limit if answer else 0, wait_us, wait_us))
        return decision._replace(source="disabled")

    def _refusal(self, key: Key, cost: int, retry_after: float) -> Decision:
        """A refusal that the store was not asked for."""
        wait_us = math.ceil(retry_after * 1_000_000) or 1
        return self._decision(key, cost, (0, 0, wait_us, wait_us))

    def _check_cost(self, cost: object) -> None:
        units = checked_units(cost)
        if units > self._limit:
            raise PolicyError(
                f"cost {units} can never be admitted: the policy {self.policy} admits at most {self._limit} at once; "
                "ask for less at a time, or for as much as fits with acquire_up_to"
            )
