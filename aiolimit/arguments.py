"""What a limiter checks before anything is asked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from .algorithms import MAX_EXACT
from .backends import MemoryBackend, RedisBackend
from .errors import PolicyError
from .policies import Policy, parse_policies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .backends import Backend

Failure = Literal["open", "closed", "local"]
Policies: TypeAlias = "Policy | str | Sequence[Policy | str]"


def checked_failure(failure: Failure) -> Failure:
    """A failure policy; ValueError when it is none."""
    if failure not in ("open", "closed", "local"):
        raise ValueError(f"failure must be 'open', 'closed' or 'local', not {failure!r}")
    return failure


def checked_deadline(deadline: object) -> float:
    """Seconds to wait at most; ValueError when they are none."""
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
        raise ValueError(f"deadline must be a number of seconds, more than 0, not {deadline!r}")
    return deadline


def checked_units(cost: object) -> int:
    """A cost in units; TypeError or ValueError when it is none."""
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"cost must be a whole number of units, not {cost!r} ({type(cost).__name__})")
    if not 0 <= cost <= MAX_EXACT:
        raise ValueError(f"cost must be between 0 and 2**53 - 1 units, not {cost}; to give units back, use refund")
    return cost


def one_policy(policy: Policies) -> Policy:
    """The one policy of a limiter; PolicyError when there is another number of them."""
    if isinstance(policy, str):
        found: tuple[object, ...] = parse_policies(policy)
    elif isinstance(policy, list | tuple):
        found = tuple(part for item in policy for part in (parse_policies(item) if isinstance(item, str) else (item,)))
    else:
        found = (policy,)
    if len(found) != 1:
        raise PolicyError(f"a limiter takes one policy, not {len(found)}: use a limiter for each")
    (one,) = found
    if not isinstance(one, Policy):
        raise TypeError(f"policy must be a policy or policy text such as '100/minute', not {one!r}")
    return one


def made_backend(backend: Backend | str | None) -> Backend:
    """The backend itself, the one that a URL makes, or one in this process."""
    if backend is None:
        return MemoryBackend()
    if isinstance(backend, str):
        return RedisBackend.from_url(backend)
    if not hasattr(backend, "place"):
        raise TypeError(
            f"backend must be a RedisBackend, a MemoryBackend or a URL, not {type(backend).__name__}; "
            "for a client that you have, write RedisBackend(client=...)"
        )
    return backend
