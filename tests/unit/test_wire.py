"""What is written to the server, byte for byte, and what its errors mean to a caller."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions as redis_errors

from aiolimit import BackendError, BackendOverloaded, BackendTimeout, BackendUnavailable
from aiolimit.backends.batch import Batch, kind
from aiolimit.backends.wire import pack_calls, pack_plainly, translate
from aiolimit.scripts import NAMES, load

WORDS = st.lists(st.binary(max_size=300) | st.integers(0, 2**53), min_size=1).map(tuple)


def batch_of(*items: tuple[bytes, int]) -> Batch:
    """A batch of the token bucket's script that asks for these keys and costs."""
    batch = Batch(kind(load("token_bucket"), (b"0", b"7")))
    for key, cost in items:
        batch.keys.append(key)
        batch.costs.append(cost)
    return batch


class TestPacking:
    @given(WORDS)
    def test_does_as_hiredis_does(self, command: tuple[bytes | int, ...]) -> None:
        """Without hiredis the same bytes go out."""
        assert pack_plainly(command) == hiredis.pack_command(command)  # type: ignore[arg-type]  # any length does

    def test_names_the_script_by_its_hash(self) -> None:
        """EVALSHA, how many keys, the keys, the rule's numbers, the costs."""
        batch = batch_of((b"a", 1), (b"b", 2))
        sha = batch.kind.script.sha.encode()
        assert pack_calls([batch]) == [pack_plainly((b"EVALSHA", sha, 2, b"a", b"b", b"0", b"7", 1, 2))]

    def test_says_one_cost_once(self) -> None:
        """Where all costs are equal one stands for all."""
        batch = batch_of((b"a", 3), (b"b", 3))
        assert pack_calls([batch])[0].endswith(b"$1\r\n7\r\n$1\r\n3\r\n")

    def test_sends_the_text_for_those_that_need_it(self) -> None:
        """The others go by hash."""
        first, second = batch_of((b"a", 1)), batch_of((b"a", 1))
        by_text, by_hash = pack_calls([first, second], [first])
        text = first.kind.script.text.encode()
        assert by_text == pack_plainly((b"EVAL", text, 1, b"a", b"0", b"7", 1))
        assert by_hash.startswith(b"*7\r\n$7\r\nEVALSHA\r\n")

    @pytest.mark.parametrize("name", NAMES)
    def test_no_script_leaves_a_number_to_lua_s_own_formatting(self, name: str) -> None:
        """Some servers print 2e+08 for 200000000: an argument of a command is a key, a text, or formatted with %d."""
        text = load(name).text
        assert "tostring" not in text
        assert "struct." not in text  # and fakeredis has no such library
        assert text.count("redis.call('TIME')") == 1


ANSWERS: list[tuple[Exception, type[BackendError], str]] = [
    (redis_errors.AuthenticationError("WRONGPASS invalid username-password pair"), BackendError, "password"),
    (redis_errors.AuthenticationError("Authentication required."), BackendError, "password"),
    (redis_errors.ResponseError("NOAUTH Authentication required."), BackendError, "password"),
    (redis_errors.NoPermissionError("User u has no permissions to run the 'eval' command"), BackendError, "+eval "),
    (redis_errors.ResponseError("ERR The user executing the script can't run this command"), BackendError, "+time"),
    (redis_errors.ResponseError("ACL failure in script: User u has no permissions"), BackendError, "+mget"),
    (redis_errors.ResponseError("WRONGTYPE Operation against a key"), BackendError, "the server refused"),
    (redis_errors.ResponseError("ERR unknown command 'EVALSHA'"), BackendError, "unknown command"),
    (redis_errors.ResponseError("CROSSSLOT Keys in request don't hash to the same slot"), BackendError, "CROSSSLOT"),
    (redis_errors.TimeoutError("Timeout reading from socket"), BackendTimeout, "in time"),
    (TimeoutError(), BackendTimeout, "TimeoutError"),
    (redis_errors.ReadOnlyError("You can't write against a read only replica."), BackendUnavailable, "read only"),
    (
        redis_errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        BackendUnavailable,
        "memory",
    ),
    (redis_errors.ResponseError("OOM command not allowed"), BackendUnavailable, "OOM"),
    (redis_errors.MasterDownError("Link with MASTER is down"), BackendUnavailable, "MASTER"),
    (redis_errors.ResponseError("BUSY Redis is busy running a script."), BackendUnavailable, "BUSY"),
    (redis_errors.BusyLoadingError("Redis is loading the dataset in memory"), BackendUnavailable, "loading"),
    (redis_errors.ResponseError("MISCONF Redis is configured to save"), BackendUnavailable, "MISCONF"),
    (redis_errors.ResponseError("NOREPLICAS Not enough good replicas to write."), BackendUnavailable, "NOREPLICAS"),
    (redis_errors.ConnectionError("Error 111 connecting to localhost:1"), BackendUnavailable, "Error 111"),
    (ConnectionResetError(104, "reset by peer"), BackendUnavailable, "reset by peer"),
    (OSError("no route"), BackendUnavailable, "no route"),
    (RuntimeError("unable to perform operation on a closed transport"), BackendUnavailable, "closed transport"),
    (redis_errors.MaxConnectionsError("Too many connections"), BackendOverloaded, "max_connections"),
    (redis_errors.ConnectionError("Too many connections"), BackendOverloaded, "max_connections"),  # redis-py 5.2
    (redis_errors.ConnectionError("No connection available."), BackendOverloaded, "max_connections"),
]


@pytest.mark.parametrize(("error", "outcome", "said"), ANSWERS, ids=lambda value: str(value)[:40])
def test_every_error_is_an_outage_an_overload_or_a_mistake(
    error: Exception, outcome: type[BackendError], said: str
) -> None:
    """An outage is for the failure policy; a mistake names what to do; a full pool is neither."""
    translated = translate(error)
    assert type(translated) is outcome
    assert said in str(translated)


def test_each_caller_gets_an_error_of_its_own() -> None:
    """One that is raised in several tasks would gather their tracebacks."""
    error = redis_errors.ConnectionError("gone")
    assert translate(error) is not translate(error)
