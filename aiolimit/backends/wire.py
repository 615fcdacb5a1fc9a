"""What goes over the wire, and what its errors mean."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors

from ..errors import BackendError, BackendOverloaded, BackendTimeout, BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .batch import Batch


def pack_plainly(command: tuple[bytes | int, ...]) -> bytes:
    """One command in the Redis protocol."""
    words = [word if isinstance(word, bytes) else b"%d" % word for word in command]
    return b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%b\r\n" % (len(word), word) for word in words]])


pack: Callable[[tuple[bytes | int, ...]], bytes] = pack_plainly
if find_spec("hiredis"):
    pack = import_module("hiredis").pack_command


def pack_calls(batches: Sequence[Batch], with_text: Sequence[Batch] = ()) -> list[bytes]:
    """The script calls of these batches, one each: by hash, or with the script's text for those ``with_text``."""
    calls: list[bytes] = []
    for batch in batches:
        script = batch.kind.script
        name, body = (b"EVAL", script.text) if batch in with_text else (b"EVALSHA", script.sha)
        costs = batch.costs
        if costs.count(costs[0]) == len(costs):
            costs = costs[:1]
        calls.append(pack((name, body.encode(), len(batch.keys), *batch.keys, *batch.kind.head, *costs)))
    return calls


_CREDENTIALS = (
    "the server did not accept the user or the password ({}): write them into the URL, redis://user:password@host"
)
_RIGHTS = (
    "the server denies a right ({}): the user needs +evalsha +eval +time +mget +get +set +pttl +pexpire +del, for "
    "sliding logs +getrange +setrange, and the keys that start with the prefix"
)
_TABLE: tuple[tuple[tuple[type[BaseException], ...], tuple[str, ...], type[BackendError], str], ...] = (
    (
        (redis_errors.AuthenticationError, redis_errors.AuthenticationWrongNumberOfArgsError),
        ("NOAUTH", "WRONGPASS", "Authentication required", "unauthenticated"),
        BackendError,
        _CREDENTIALS,
    ),
    ((redis_errors.NoPermissionError,), ("NOPERM", "can't run this command", "ACL failure"), BackendError, _RIGHTS),
    (
        (redis_errors.MaxConnectionsError,),
        ("No connection available", "Too many connections"),
        BackendOverloaded,
        "no connection came free in the pool ({}): raise its max_connections",
    ),
    ((redis_errors.TimeoutError, TimeoutError), (), BackendTimeout, "the server did not answer in time ({})"),
    (
        (
            redis_errors.ReadOnlyError,
            redis_errors.OutOfMemoryError,
            redis_errors.MasterDownError,
            redis_errors.ClusterDownError,
            redis_errors.TryAgainError,
        ),
        ("BUSY ", "LOADING", "MASTERDOWN", "READONLY", "OOM ", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF"),
        BackendUnavailable,
        "the server cannot decide now ({})",
    ),
    ((redis_errors.ResponseError,), (), BackendError, "the server refused ({})"),
    # Redis-py lets runtime and attribute errors out of a transport that is going down.
    (
        (redis_errors.RedisError, redis_errors.RedisClusterException, OSError, EOFError, RuntimeError, AttributeError),
        (),
        BackendUnavailable,
        "the server is not available ({})",
    ),
    ((BaseException,), (), BackendError, "an error that nobody expected ({}): please report it"),
)
"""What an error is, by its class or by a word in its text: the first row that fits says it."""


def translate(error: BaseException) -> BackendError:
    """What an error of the client or the server means to a caller."""
    text = f"{type(error).__name__}: {error}"
    for classes, words, outcome, meaning in _TABLE:
        if isinstance(error, classes) or any(word in text for word in words):
            return outcome(meaning.format(text))
    raise AssertionError(text)  # the last row fits everything
