"""Group commit: callers that ask at the same moment share one script call.

Theory of operation. A `Hub` is what one event loop holds of one server. A caller appends its question to the open
`Batch` of its kind and awaits a future; the first one in a turn of the loop schedules `Hub._turn`, which stamps the
deadline and wakes a lane. While every lane has a call in flight the queue grows; a lane that comes free takes all of
it, up to a cap. There is no timer on this way and no waiting for more to come.

What must hold:

- A future is the caller's alone. Cancelling it, or its deadline, touches no I/O, except that the last deadline of a
  batch on the wire drops the connection, since its answers are no longer of use to anyone.
- A batch is sent once. If it was written and no answer came, its callers hear so; nobody sends it again.
- A question that nobody awaits any more when its batch is sent is left out of it.
- Every future that was handed out is settled: by an answer, an error, its deadline, or `Hub.aclose`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cache
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING

from ..errors import BackendError, BackendOverloaded, BackendTimeout, BackendUnavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from ..algorithms import Answer
    from ..scripts import Script
    from .lane import Lane

MAX_KEYS_PER_CALL = 250
"""The most keys in one script call. More would gain nothing and hold the server up for longer (see `benchmarks/`)."""
_SHOWN_KEY = 40
"""How many bytes of a key an error shows."""


@dataclass(slots=True)
class Stats:
    """What a Redis backend has done since it was made."""

    decisions: int = 0
    """Questions that were sent."""
    calls: int = 0
    """Script calls that carried them."""
    script_loads: int = 0
    """Calls that had to carry the script's text, because the server did not know it."""
    timeouts: int = 0
    """Callers that had no answer within their deadline."""
    connections: int = 0
    """Connections opened."""
    failures: int = 0
    """Exchanges with the server that an error ended."""


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

    __slots__ = ("awaited", "costs", "futures", "keys", "kind", "lane", "marked", "whole")

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


def _foreign(key: bytes) -> BackendError:
    shown = key if len(key) < _SHOWN_KEY else key[:_SHOWN_KEY] + b"..."  # it may be a secret, and is of any length
    return BackendError(
        f"the Redis key {shown!r} holds a value that aiolimit did not write: "
        "delete it, or give the backend another prefix or the limiter another name"
    )


class Hub:
    """What one event loop holds of one server: the queue, the lanes and the deadlines.

    Args:
        loop: The running loop.
        open_lane: Makes a lane for this hub.
        stats: The backend's counters.
        lanes: The most lanes.
        deadline: Seconds that a caller waits for its answer at most.
        backlog: How many questions may be waiting to be sent.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_lane: Callable[[Hub], Lane],
        stats: Stats,
        *,
        lanes: int,
        deadline: float,
        backlog: int,
    ) -> None:
        self.loop = loop
        self.stats = stats
        self.deadline = deadline
        self.starved = False
        """Whether the last attempt to open a connection found the pool empty."""
        self._open_lane = open_lane
        self._max_lanes = lanes
        self._backlog = backlog
        self._lanes: list[Lane] = []
        self._queue: deque[Batch] = deque()
        self._open: dict[Kind, Batch] = {}
        self._new: list[Batch] = []
        self._waiting = 0
        self._turn_is_due = False
        self._expiries: deque[tuple[float, Batch, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_work(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._queue)

    def ask(self, kind: Kind, key: bytes, cost: int) -> asyncio.Future[Answer]:
        """Queue one question. Await the future for its answer."""
        if self._waiting >= self._backlog:
            raise self._overloaded()
        batch = self._open.get(kind)
        if batch is None or len(batch.keys) >= MAX_KEYS_PER_CALL:
            batch = self._next_batch(kind, batch)
        future: asyncio.Future[Answer] = self.loop.create_future()
        batch.keys.append(key)
        batch.costs.append(cost)
        batch.futures.append(future)
        self._waiting += 1
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._turn)
        return future

    def ask_many(self, kind: Kind, keys: list[bytes], costs: list[int]) -> list[asyncio.Future[list[Answer]]]:
        """Queue a caller's own batch, in as many calls as it needs. The futures' answers, joined, are in its order."""
        if self._waiting >= self._backlog:
            raise self._overloaded()
        wholes: list[asyncio.Future[list[Answer]]] = []
        for start in range(0, len(keys), MAX_KEYS_PER_CALL):
            batch = Batch(kind)
            batch.keys = keys[start : start + MAX_KEYS_PER_CALL]
            batch.costs = costs[start : start + MAX_KEYS_PER_CALL]
            batch.whole = self.loop.create_future()
            wholes.append(batch.whole)
            self._queue.append(batch)
            self._new.append(batch)
        self._waiting += len(keys)
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._turn)
        return wholes

    def take(self) -> list[Batch]:
        """What a free lane sends next: everything that waits, up to the cap."""
        taken: list[Batch] = []
        room = MAX_KEYS_PER_CALL
        deadline = self.loop.time() + self.deadline
        while self._queue and (not taken or len(self._queue[0].keys) <= room):
            batch = self._queue.popleft()
            self._waiting -= len(batch.keys)
            if self._open.get(batch.kind) is batch:
                del self._open[batch.kind]
            self._mark(batch, deadline)
            if batch.prune():
                taken.append(batch)
                room -= len(batch.keys)
        return taken

    def _next_batch(self, kind: Kind, full: Batch | None) -> Batch:
        if full is not None:
            self._mark(full, self.loop.time() + self.deadline)
        batch = self._open[kind] = Batch(kind)
        self._queue.append(batch)
        return batch

    def _turn(self) -> None:
        """Once in a turn of the loop in which somebody asked: stamp the deadline, wake a lane."""
        self._turn_is_due = False
        deadline = self.loop.time() + self.deadline
        for batch in self._open.values():
            self._mark(batch, deadline)
        for batch in self._new:
            self._mark(batch, deadline)
        self._new.clear()
        self.wake_lane()

    def wake_lane(self) -> None:
        """See to it that somebody serves the queue: an idle lane, or one more if none is being opened."""
        if not self._queue or any(lane.wake() for lane in self._lanes):
            return
        self._lanes = [lane for lane in self._lanes if not lane.ended]
        if len(self._lanes) < self._max_lanes and not any(lane.is_opening for lane in self._lanes):
            self._lanes.append(self._open_lane(self))

    def has_other_connection(self, than: Lane) -> bool:
        """Whether another lane can serve the queue."""
        return any(lane is not than and lane.is_connected for lane in self._lanes)

    def _mark(self, batch: Batch, deadline: float) -> None:
        size = len(batch.keys)
        if batch.marked < size:
            batch.marked = size
            self._expiries.append((deadline, batch, size))
            if self._timer is None:
                self._timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """End the wait of those whose deadline has come; drop the connection of a batch whose last one it was."""
        self._timer = None
        now = self.loop.time()
        while self._expiries:
            deadline, batch, upto = self._expiries[0]
            if deadline > now:
                self._timer = self.loop.call_at(deadline, self._expire)
                return
            self._expiries.popleft()
            batch.fail(self._too_late, upto)
            if batch.lane is not None and upto == batch.marked:
                batch.lane.drop()

    def _too_late(self) -> BackendUnavailable:
        self.stats.timeouts += 1
        within = f"within {self.deadline * 1000:.0f} ms"
        if self.starved:
            return BackendOverloaded(f"no connection came free in the pool {within}: raise its max_connections")
        return BackendTimeout(f"no answer {within}")

    def _overloaded(self) -> BackendOverloaded:
        return BackendOverloaded(
            f"{self._waiting} questions already wait to be sent: raise max_backlog, or ask for less"
        )

    async def aclose(self) -> None:
        """End every lane and give up what waits. A hub that is asked again opens new ones."""
        lanes, self._lanes = self._lanes, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._expiries.clear()
        for batch in self._queue:
            batch.fail(closed)
        self._queue.clear()
        self._open.clear()
        self._new.clear()
        self._waiting = 0
        for lane in lanes:
            await lane.aclose()


def closed() -> BackendUnavailable:
    """What a caller hears whose backend was closed before its answer came."""
    return BackendUnavailable("the backend was closed before the answer came")


def given_up() -> BackendTimeout:
    """What a caller hears whose answer was due on a connection that was given up for being late."""
    return BackendTimeout("the connection was given up: the answers before this one came too late")
