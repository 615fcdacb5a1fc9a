"""Group commit: callers that ask at the same moment share one script call.

Theory of operation. A `Hub` is what one event loop holds of one server. A caller appends its question to the open
`Batch` of its kind and awaits a future; the first one in a turn of the loop schedules `Hub._turn`, which stamps the
deadline and wakes a lane. While every lane has a call in flight the queue grows; a lane that comes free takes all of
it, up to a cap. There is no timer on this way and no waiting for more to come.

What must hold:

- Who waits longer than the deadline hears so. Up to twice as long again waits only what this process itself holds up:
  its event loop, or its other callers while the server is answering.
- A future is the caller's alone. Cancelling it, or its deadline, touches no I/O, except that the last deadline of a
  batch on the wire drops the connection, since its answers are no longer of use to anyone.
- A batch is sent once. If it was written and no answer came, its callers hear so; nobody sends it again.
- A question that nobody awaits any more when its batch is sent is left out of it.
- Every future that was handed out is settled: by an answer, an error, its deadline, or `Hub.aclose`.
"""

from __future__ import annotations

import contextvars
import logging
import math
import time
from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from ..errors import BackendClosed, BackendOverloaded, BackendTimeout, CircuitOpen
from ..events import DecidedWithout
from .batch import Batch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..algorithms import Answer
    from ..breaker import CircuitBreaker
    from ..decision import Source
    from ..errors import BackendError, BackendUnavailable
    from ..events import Listener
    from .batch import Kind
    from .lane import Lane
    from .stats import Stats

MAX_KEYS_PER_CALL = 250
"""The most keys in one script call. More would gain nothing and hold the server up for longer (see `benchmarks/`)."""
_log = logging.getLogger(__name__)

_TURNS_FOR_REPLIES = 3
"""How many turns of the loop a reply needs from the socket to its caller, with one to spare."""
_HELD_UP = 0.005
"""A timer that is later, in seconds, says that the event loop was held up."""
_MOST_PATIENCE = 2
"""How many deadlines more a question may wait, at most, behind others of its process while the server is answering."""
_PROBE_SLACK = 0.05
"""What a probe may take beyond the deadline, in seconds, before it is taken for lost."""


class Hub:
    """What one event loop holds of one server: the queue, the lanes and the deadlines.

    Args:
        loop: The running loop.
        open_lane: Makes a lane for this hub.
        breaker: Says whether the server may be asked.
        tell: Takes the events.
        server: How events name the server.
        stats: The backend's counters.
        lanes: The most lanes.
        deadline: Seconds that a caller waits for its answer at most.
        backlog: How many questions may be waiting to be sent.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_lane: Callable[[Hub], Lane],
        *,
        breaker: CircuitBreaker,
        tell: Listener,
        server: str,
        stats: Stats,
        lanes: int,
        deadline: float,
        backlog: int,
    ) -> None:
        self.loop = loop
        self.breaker = breaker
        self.tell = tell
        self.server = server
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
        self._expiries: list[tuple[float, int, Batch, int, float]] = []  # a heap; the number keeps equal times apart
        self._marks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._held_up = 0.0
        """How late the timer was, in seconds."""
        self.answered_at = -math.inf
        """When the server last answered, in the loop's seconds."""
        self._without: dict[tuple[str, Source], tuple[int, BackendError]] = {}
        self._context = contextvars.Context()  # of its own, so that no caller's lives on in a timer

    @property
    def has_work(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._queue)

    def ask(self, kind: Kind, key: bytes, cost: int, deadline: float | None = None) -> asyncio.Future[Answer]:
        """Queue one question. Await the future for its answer.

        Args:
            kind: What to ask.
            key: The Redis key.
            cost: Units.
            deadline: Seconds, if they are not the hub's.
        """
        if not self.breaker.is_closed or self._waiting >= self._backlog:
            self._check()
        if deadline is not None:
            batch = self._own_batch(kind, deadline)
        else:
            open_batch = self._open.get(kind)
            if open_batch is None or len(open_batch.keys) >= MAX_KEYS_PER_CALL:
                open_batch = self._next_batch(kind, open_batch)
            batch = open_batch
        future: asyncio.Future[Answer] = self.loop.create_future()
        batch.keys.append(key)
        batch.costs.append(cost)
        batch.futures.append(future)
        self._waiting += 1
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._turn, context=self._context)
        return future

    def ask_many(self, kind: Kind, keys: list[bytes], costs: list[int]) -> list[asyncio.Future[list[Answer]]]:
        """Queue a caller's own batch, in as many calls as it needs. The futures' answers, joined, are in its order."""
        self._check()
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
            self.loop.call_soon(self._turn, context=self._context)
        return wholes

    def decided_without(self, limiter: str, source: Source, decisions: int, error: BackendError) -> None:
        """Tell of decisions made without the server: of all that one turn of the loop made as one event."""
        what = limiter, source
        if not self._without:
            self.loop.call_soon(self._tell_of_decisions, context=self._context)
        self._without[what] = self._without.get(what, (0, error))[0] + decisions, error

    def _tell_of_decisions(self) -> None:
        without, self._without = self._without, {}
        for (limiter, source), (decisions, error) in without.items():
            self.tell(DecidedWithout(self.server, limiter, source, decisions, error))

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

    def _check(self) -> None:
        """Turn a question away that must not, or need not, wait."""
        if not self.breaker.admits(time.monotonic(), self.deadline + _PROBE_SLACK):
            self.stats.not_asked += 1
            _log.debug("the circuit breaker is %s: not asked", self.breaker.state)
            raise CircuitOpen("not asked: the circuit breaker is open")
        if self._waiting >= self._backlog:
            self.stats.overloads += 1
            raise BackendOverloaded(
                f"{self._waiting} questions already wait to be sent: raise max_backlog, or ask for less at a time"
            )

    def _own_batch(self, kind: Kind, deadline: float) -> Batch:
        """A batch for one question that has a deadline of its own."""
        batch = Batch(kind)
        self._queue.append(batch)
        batch.marked = 1
        due = self.loop.time() + deadline
        self._expire_at(due, batch, 1, due)
        return batch

    def give_up_queue(self) -> None:
        """The breaker opened: let nobody wait for what will not be sent."""
        for batch in self._queue:
            self._waiting -= len(batch.keys)
            batch.fail(_circuit_open)
        self._queue.clear()
        self._open.clear()
        self._new.clear()

    def _next_batch(self, kind: Kind, full: Batch | None) -> Batch:
        if full is not None:
            self._new.append(full)
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
        _log.debug("%d waiting to be sent", self._waiting)
        self.wake_lane()

    def wake_lane(self) -> None:
        """See to it that somebody serves the queue: an idle lane, or one more if none is being opened."""
        if not self._queue or self.wake_connected_lane() or any(lane.wake() for lane in self._lanes):
            return
        self._lanes = [lane for lane in self._lanes if not lane.ended]
        if len(self._lanes) < self._max_lanes and not any(lane.is_opening for lane in self._lanes):
            self._lanes.append(self._open_lane(self))

    def wake_connected_lane(self) -> bool:
        """Wake an idle lane that has a connection. Gives whether there was one."""
        return any(lane.is_connected and lane.wake() for lane in self._lanes)

    def has_other_connection(self, than: Lane) -> bool:
        """Whether another lane can serve the queue."""
        return any(lane is not than and lane.is_connected for lane in self._lanes)

    def _mark(self, batch: Batch, deadline: float) -> None:
        size = len(batch.keys)
        if batch.marked < size:
            batch.marked = size
            self._expire_at(deadline, batch, size, deadline + _MOST_PATIENCE * self.deadline)

    def _expire_at(self, deadline: float, batch: Batch, upto: int, latest: float) -> None:
        self._marks += 1
        heappush(self._expiries, (deadline, self._marks, batch, upto, latest))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self._expire, context=self._context)
        self._timer_at = when  # uvloop's handles do not tell

    def _expire(self, turns: int = _TURNS_FOR_REPLIES) -> None:
        """A deadline has come. What has arrived goes first: a loop that was held up is not a server that was slow."""
        if turns == _TURNS_FOR_REPLIES:
            self._held_up = self.loop.time() - self._timer_at
        if turns:
            self.loop.call_soon(self._expire, turns - 1, context=self._context)
        else:
            self.expire_due()

    def expire_due(self) -> None:
        """End the wait of those whose deadline has come; drop the connection of a batch whose last one it was."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self.loop.time()
        unsent = False
        while self._expiries and self._expiries[0][0] <= now:
            _, number, batch, upto, latest = self._expiries[0]
            again = self._look_again_at(now, batch, latest)
            if again > now:
                heapreplace(self._expiries, (again, number, batch, upto, latest))
                continue
            heappop(self._expiries)
            if batch.keys:
                _log.debug("the deadline of %d has come", upto)
                unsent = unsent or (batch.lane is None and self._held_up <= _HELD_UP)
                batch.fail(self._too_late, upto)
                if batch.lane is not None and upto == batch.marked:
                    batch.lane.drop()
        self._held_up = 0.0
        if self._expiries:
            self._set_timer(self._expiries[0][0])
        if unsent and not self.starved and not any(lane.is_connected for lane in self._lanes):
            self.report_failure(self.breaker.generation)

    def report_failure(self, generation: int) -> None:
        """Let the breaker know of an outage, and let nobody wait if that opens it."""
        self.stats.failures += 1
        self.breaker.failed(generation, time.monotonic())
        if not self.breaker.is_closed:
            self.give_up_queue()

    def _look_again_at(self, now: float, batch: Batch, latest: float) -> float:
        """Until when to be patient with a batch whose deadline has come.

        The time that this event loop was held up is not the server's. And a server that is answering is not away: what
        waits behind thousands of others of this very process gets more time then, because to fail open under one's own
        load would let through the most when there is the most.
        """
        if not batch.keys:
            return now
        if self._held_up > _HELD_UP:
            return min(now + self._held_up, latest)
        if now - self.answered_at > self.deadline / 2:
            return now
        turn = now + self.deadline / 4 if batch.lane is None else batch.sent_at + self.deadline
        return min(turn, latest)

    def _too_late(self) -> BackendUnavailable:
        self.stats.timeouts += 1
        within = f"within {self.deadline * 1000:.0f} ms"
        if self.starved:
            return BackendOverloaded(f"no connection came free in the pool {within}: raise its max_connections")
        return BackendTimeout(f"no answer {within}")

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


def _circuit_open() -> CircuitOpen:
    return CircuitOpen("given up before it was sent: the circuit breaker opened")


def closed() -> BackendClosed:
    """What a caller hears whose backend was closed before its answer came."""
    return BackendClosed("the backend was closed before the answer came")


def given_up() -> BackendTimeout:
    """What a caller hears whose answer was due on a connection that was given up for being late."""
    return BackendTimeout("the connection was given up: the answers before this one came too late")
