"""The questions about many callers at once differ in their number and their goal only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .compare.bare import POOL, asker, hash_call, our_call, pooled
from .compare.peers import PEERS, peer_pace, require
from .load import KEYS, limiter_pace, pace_of, run_on_uvloop
from .runner import Goal, SkippedError, Table, check

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from .compare.bare import Call
    from .load import Pace
    from .runner import Bench
    from .server import Server

HASH = f"redis-py, usual script, pool of {POOL}"
SAME = f"redis-py, our script, pool of {POOL}"
OURS = "aiolimit"


def measure(
    bench: Bench, callers: int, *, least_over_bare: float | None, least_over_peers: float | None
) -> Iterator[Table]:
    """Decisions a second, on uvloop; each caller asks the next when the last is answered."""
    ours, others = bench.size(60_000, 20_000), bench.size(12_000, 6_000)
    with bench.server() as server:
        starts: dict[str, Callable[[], Coroutine[Any, Any, Pace]]] = {
            HASH: partial(_bare_pace, server, hash_call(server), callers, others),
            SAME: partial(_bare_pace, server, our_call(server), callers, others),
            OURS: partial(limiter_pace, server.url, callers, ours),
        }
        notes = _add_peers(starts, server, callers, others) if bench.peers else ["peers were not asked for: --peers"]
        goals = [Goal(OURS, least=least_over_bare, versus=SAME)] if least_over_bare else []
        if least_over_peers:
            goals += [Goal(OURS, least=least_over_peers, versus=name) for name in PEERS if name in starts]
        client_us: dict[str, list[float]] = {name: [] for name in starts}
        table = bench.measure(
            f"{callers:,} callers, {KEYS:,} keys",
            "decisions/s",
            {name: partial(_measured, server, start, client_us[name]) for name, start in starts.items()},
            yardstick=SAME,
            goals=tuple(goals),
        )
        table.notes += notes
        yield table
        warm = {name: values[1:] for name, values in client_us.items()}
        yield Table("of that, the client's CPU", "µs a decision", warm, SAME)


def _measured(server: Server, start: Callable[[], Coroutine[Any, Any, Pace]], client_us: list[float]) -> float:
    server.flush()
    pace = run_on_uvloop(start())
    client_us.append(pace.client_us)
    return pace.per_second


def _add_peers(
    starts: dict[str, Callable[[], Coroutine[Any, Any, Pace]]], server: Server, callers: int, questions: int
) -> list[str]:
    """Add the peers that are installed. Gives a note for each that is not."""
    notes = []
    for name, (package, _) in PEERS.items():
        try:
            require(package, name)
        except SkippedError as reason:
            notes.append(f"SKIPPED {name}: {reason}")
        else:
            starts[name] = partial(peer_pace, name, server, callers, questions)
    return notes


async def _bare_pace(server: Server, call: Call, callers: int, questions: int) -> Pace:
    async with pooled(server) as client:
        counts = [0]
        pace = await pace_of(asker(client, call, counts), callers, questions)
        expected = callers * 2 + questions // callers * callers
        check(counts[0] == expected, f"{expected} asked, {counts[0]} admitted")
        return pace
