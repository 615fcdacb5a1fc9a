"""A backend that fails on demand."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ..backends import MemoryBackend, Place
from ..errors import BackendTimeout, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..algorithms import Answer
    from ..backends import Answers, Backend
    from ..decision import Source
    from ..errors import BackendError
    from ..keys import Key
    from ..policies import Policy


class FaultyBackend:
    """Decides as another backend does, until told to fail.

    Args:
        inner: The backend that decides while all is well; a `MemoryBackend` unless given.
        deadline: Seconds after which a delayed answer is an outage.

    Attributes:
        error: What every question meets now: an exception, or None. Set it with `fail` and `recover`.
        delay: Seconds that every answer takes.
        asked: How many questions arrived.
        decided_without: How many decisions the limiters made without it, by their source.
    """

    def __init__(self, inner: Backend | None = None, *, deadline: float = 0.1) -> None:
        self.inner: Backend = MemoryBackend() if inner is None else inner
        self.deadline = deadline
        self.error: BackendError | None = None
        self.delay = 0.0
        self.asked = 0
        self.decided_without: dict[Source, int] = {}

    @property
    def source(self) -> Source:
        """The source of the backend within."""
        return self.inner.source

    def fail(self, error: BackendError | None = None) -> None:
        """Meet every question with this error; `BackendUnavailable`, an outage, unless given."""
        self.error = error or BackendUnavailable("made to fail")

    def recover(self) -> None:
        """Decide again, at once."""
        self.error = None
        self.delay = 0.0

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> Place:
        """Prepare to decide, or to fail."""
        inner = self.inner.place(name, policy, group)
        return Place(partial(self._ask, inner), partial(self._ask_many, inner), self._count)

    async def _ask(self, inner: Place, op: int, key: Key, cost: int, deadline: float | None = None) -> Answer:
        await self._fault(1, self.deadline if deadline is None else deadline)
        answer = inner.ask(op, key, cost)
        return answer if isinstance(answer, tuple) else await answer

    async def _ask_many(self, inner: Place, op: int, keys: Sequence[Key], costs: Sequence[int]) -> Answers:
        await self._fault(len(keys), self.deadline)
        answers = inner.ask_many(op, keys, costs)
        return answers if isinstance(answers, list) else await answers

    async def _fault(self, questions: int, deadline: float) -> None:
        self.asked += questions
        if self.delay:
            await asyncio.sleep(min(self.delay, deadline))
            if self.delay > deadline:
                raise BackendTimeout(f"no answer within {deadline * 1000:.0f} ms")
        if self.error is not None:
            raise self.error

    def _count(self, source: Source, decisions: int, error: BackendError) -> None:
        del error
        self.decided_without[source] = self.decided_without.get(source, 0) + decisions

    async def aclose(self) -> None:
        """Close the backend within."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
