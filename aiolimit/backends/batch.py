"""Questions that travel in one script call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING

from ..errors import BackendError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from ..algorithms import Answer
    from ..scripts import Script
    from .lane import Lane

_SHOWN_KEY = 40
"""How many bytes of a key an error shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What the questions of one script call have in common. Compared by identity: take it from `kind`."""

    script: Script
    head: tuple[bytes, ...]
    """The verb and the rule's numbers, as ARGV carries them."""


@cache
def kind(script: Script, head: tuple[bytes, ...]) -> Kind:
    """The one kind with this script and these numbers, so that limiters with equal policies share their calls."""
    return Kind(script, head)


class Batch:
    """Questions of one kind that travel in one script call, with the futures that await the answers."""

    __slots__ = ("awaited", "costs", "futures", "keys", "kind", "lane", "marked", "sent_at", "whole")

    def __init__(self, kind_: Kind) -> None:
        self.kind = kind_
        self.keys: list[bytes] = []
        self.costs: list[int] = []
        self.futures: list[asyncio.Future[Answer]] = []
        self.awaited = self.futures
        """The futures whose questions are sent, in the order of ``keys``."""
        self.whole: asyncio.Future[list[Answer]] | None = None
        """In place of the futures, where one caller asked for everything."""
        self.marked = 0
        """How many of the questions have a deadline."""
        self.lane: Lane | None = None
        """Who has it on the wire."""
        self.sent_at = 0.0
        """Since when, in the loop's seconds."""

    def prune(self) -> bool:
        """Leave out the questions that nobody awaits any more. Gives whether anything is left to ask."""
        if self.whole is not None:
            return not self.whole.done()
        done = [future.done() for future in self.futures]
        if any(done):
            self.keys = list(compress(self.keys, map(not_, done)))
            self.costs = list(compress(self.costs, map(not_, done)))
            self.awaited = list(compress(self.futures, map(not_, done)))
        return bool(self.keys)

    def settle(self, reply: Sequence[int]) -> None:
        """Hand out the answers: four integers for each key."""
        granted = reply[::4]
        answers = list(zip(granted, reply[1::4], reply[2::4], reply[3::4], strict=True))
        if min(granted) < 0:
            self._settle_foreign(answers)
        elif self.whole is None:
            for future, answer in zip(self.awaited, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        elif not self.whole.done():
            self.whole.set_result(answers)
        self._let_go()

    def _let_go(self) -> None:
        """Hold on to nothing: a batch that is over may still be waited for by its deadline."""
        self.keys, self.costs, self.futures, self.awaited = [], [], [], []
        self.lane = None

    def _settle_foreign(self, answers: list[Answer]) -> None:
        """Hand out the answers when some keys hold a value that is not ours: an error to those who asked for them."""
        foreign = {
            index: _foreign(key)
            for index, (key, answer) in enumerate(zip(self.keys, answers, strict=True))
            if answer[0] < 0
        }
        if self.whole is not None:
            if not self.whole.done():
                self.whole.set_exception(next(iter(foreign.values())))
            return
        for index, future in enumerate(self.awaited):
            if future.done():
                continue
            if index in foreign:
                future.set_exception(foreign[index])
            else:
                future.set_result(answers[index])

    def fail(self, make_error: Callable[[], Exception], upto: int | None = None) -> None:
        """Let every caller, or the first ``upto``, know what went wrong: an error of its own for each."""
        futures: Sequence[asyncio.Future[Answer] | asyncio.Future[list[Answer]]]
        futures = self.futures[:upto] if self.whole is None else [self.whole]
        for future in futures:
            if not future.done():
                future.set_exception(make_error())
        if upto is None:
            self._let_go()


def _foreign(key: bytes) -> BackendError:
    shown = key if len(key) < _SHOWN_KEY else key[:_SHOWN_KEY] + b"..."  # it may be a secret, and is of any length
    return BackendError(
        f"the Redis key {shown!r} holds a value that aiolimit did not write: "
        "delete it, or give the backend another prefix or the limiter another name"
    )
