"""The test suite's own instruments: a test that trusts them is only as good as they are."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis
from blockbuster import BlockingError, blockbuster_ctx

from tests import support
from tests.conftest import OwnServer
from tests.support.proxy import FaultProxy
from tests.support.servers import HOST, Server, ServerError

HOUR_US = 3_600_000_000


@contextmanager
def connected(url: str, timeout: float = 2.0) -> Iterator[redis.Redis]:
    """A client that never retries, so that a test sees each fault as it is."""
    with closing(redis.Redis.from_url(url, protocol=2, socket_timeout=timeout)) as client:
        yield client


def alive(pid: int) -> bool:
    """Whether a process is there and not merely unburied."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestServer:
    def test_answers_on_its_port_and_on_its_socket(self, server: Server) -> None:
        """Both addresses lead to the same server, in the database they name."""
        with connected(server.url(3)) as by_port, connected(server.unix_url(3)) as by_socket:
            by_port.set("a", 1, ex=10)
            assert by_socket.get("a") == b"1"

    def test_is_of_the_kind_it_says(self, server: Server) -> None:
        """The parametrized fixture really covers two servers."""
        assert server.admin.info("server").get("server_name", "redis") == server.kind

    def test_reset_undoes_what_a_test_did(self, server: Server) -> None:
        """Data, scripts, users, settings and replication are as at the start."""
        admin = server.admin
        sha = admin.script_load("return 1")
        admin.set("a", 1)
        admin.acl_setuser("guest", enabled=True, nopass=True)
        admin.config_set("maxmemory", 1)
        admin.replicaof(HOST, 1)
        server.reset()
        assert admin.dbsize() == 0
        assert admin.script_exists(sha) == [False]
        assert admin.acl_users() == ["default"]
        assert admin.config_get("maxmemory") == {"maxmemory": "0"}
        assert admin.info("replication")["role"] == "master"

    def test_counts_commands_those_inside_scripts_too(self, server: Server) -> None:
        """The count is exact and does not hold the counting itself."""
        server.reset_stats()
        server.admin.eval("return redis.call('GET', KEYS[1])", 1, "a")
        assert server.commandstats() == {"eval": 1, "get": 1}

    def test_names_keys_without_an_expiry_in_any_database(self, own_server: OwnServer) -> None:
        """What the check after every test relies on."""
        server = own_server()
        server.admin.set("mortal", 1, px=60_000)
        assert server.immortal_keys() == []
        with connected(server.url(5)) as client:
            client.set("immortal", 1)
        assert server.immortal_keys() == [b"immortal"]

    def test_restart_keeps_the_port_and_wipes(self, own_server: OwnServer) -> None:
        """After a restart the same address leads to an empty server with another process id."""
        server = own_server()
        url, pid = server.url(), server.pid
        server.admin.set("a", 1)
        server.restart()
        assert (server.url(), server.pid != pid) == (url, True)
        assert server.admin.get("a") is None

    def test_restart_without_wiping_keeps_data_and_loses_scripts(self, own_server: OwnServer) -> None:
        """As a server with persistence does."""
        server = own_server()
        sha = server.admin.script_load("return 1")
        server.admin.set("a", 1)
        server.restart(wipe=False)
        assert server.admin.get("a") == b"1"
        assert server.admin.script_exists(sha) == [False]

    def test_killed_server_refuses_and_can_start_again(self, own_server: OwnServer) -> None:
        """`kill` is a crash: the port is closed when it returns."""
        server = own_server()
        pid = server.pid
        server.kill()
        assert not alive(pid)
        with connected(server.url()) as client, pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert server.admin.ping()

    def test_frozen_server_accepts_and_does_not_answer(self, own_server: OwnServer) -> None:
        """SIGSTOP looks like a stalled machine; afterwards it goes on."""
        server = own_server()
        server.pause()
        with connected(server.url(), timeout=0.05) as client, pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert server.admin.ping()

    def test_frozen_server_can_be_closed(self, own_server: OwnServer) -> None:
        """The end of a test does not hang on a server it left frozen."""
        server = own_server()
        pid = server.pid
        server.pause()
        server.close()
        assert not alive(pid)

    def test_asks_for_its_password(self, own_server: OwnServer) -> None:
        """The addresses carry it, with every character escaped."""
        server = own_server(password="p@ss/w:rd")
        with connected(server.url()) as by_port, connected(server.unix_url()) as by_socket:
            assert by_port.ping()
            assert by_socket.ping()
        with connected(f"redis://{HOST}:{server.port}") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()

    def test_speaks_tls(self, own_server: OwnServer) -> None:
        """A client that trusts the authority is served; one that does not is turned away."""
        server = own_server(with_tls=True)
        with connected(server.url()) as client:
            assert client.ping()
        with connected(f"rediss://{HOST}:{server.port}") as stranger, pytest.raises(redis.ConnectionError):
            stranger.ping()

    def test_takes_settings_and_words(self, own_server: OwnServer) -> None:
        """Settings by name, and anything else for the command line."""
        server = own_server(config={"maxclients": "77"}, args=["--databases", "3"])
        assert server.admin.config_get("maxclients", "databases") == {"maxclients": "77", "databases": "3"}

    def test_that_does_not_start_says_why(self, own_server: OwnServer) -> None:
        """The error carries the server's own words."""
        with pytest.raises(ServerError, match="no-such-setting"):
            own_server(args=["--no-such-setting", "1"])

    def test_ends_with_a_test_process_that_is_killed(self) -> None:
        """No server outlives the run, even when no fixture can clean up."""
        script = (
            "from tests.support.servers import Server; server = Server('valkey').start();"
            "print(server.pid, flush=True); input()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=support.REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with holder:
            assert holder.stdout is not None
            pid = int(holder.stdout.readline())
            assert alive(pid)
            os.kill(holder.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while alive(pid):
            assert time.monotonic() < deadline, "the server is still there"
            time.sleep(0.01)


class TestClock:
    @pytest.mark.parametrize("offset_us", [-HOUR_US, HOUR_US, -50_000, 50_000])
    def test_time_steps_at_once(self, own_server: OwnServer, offset_us: int) -> None:
        """TIME is off by exactly the offset in the very next command, and right again after it."""
        server = own_server(with_clock=True)

        def assert_ahead_by(ahead_us: int) -> None:
            before_us = time.time_ns() // 1000
            seconds, micros = server.admin.time()
            after_us = time.time_ns() // 1000
            told_us = int(seconds) * 1_000_000 + int(micros) - ahead_us
            assert before_us - 1000 <= told_us <= after_us + 1000  # Valkey counts on from a reading it took before

        server.set_clock_offset(offset_us)
        assert_ahead_by(offset_us)
        server.set_clock_offset(0)
        assert_ahead_by(0)

    def test_time_steps_inside_scripts(self, own_server: OwnServer) -> None:
        """Scripts read the same clock."""
        server = own_server(with_clock=True)
        server.set_clock_offset(HOUR_US)
        seconds = int(server.admin.eval("return redis.call('TIME')[1]", 0))
        assert 3_599 <= seconds - time.time() <= 3_601

    def test_expiry_follows(self, own_server: OwnServer) -> None:
        """A key is gone as soon as the clock has passed its time, and PTTL grows when the clock goes back."""
        server = own_server(with_clock=True)
        server.admin.set("a", 1, px=60_000)
        server.set_clock_offset(-HOUR_US)
        assert server.admin.pttl("a") > 3_600_000
        server.set_clock_offset(61_000_000)
        assert server.admin.get("a") is None


@pytest.fixture
def wire(server: Server, proxy: Callable[[Server], FaultProxy]) -> FaultProxy:
    """A proxy before the server."""
    return proxy(server)


class TestProxy:
    def test_carries_both_directions_and_counts(self, wire: FaultProxy) -> None:
        """Bytes are counted exactly, as sent on the wire."""
        with closing(socket.create_connection((HOST, wire.port))) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
            assert (wire.accepted, wire.open) == (1, 1)
        assert (wire.to_server.bytes, wire.to_server.chunks) == (6, 1)
        assert (wire.to_client.bytes, wire.to_client.chunks) == (7, 1)

    def test_carries_more_than_its_buffers(self, wire: FaultProxy) -> None:
        """A large value arrives whole."""
        with connected(wire.url()) as client:
            client.set("a", b"x" * 5_000_000, ex=10)
            assert client.get("a") == b"x" * 5_000_000

    def test_latency_delays_replies_and_keeps_them_pipelined(self, wire: FaultProxy) -> None:
        """Each reply is late by the latency; ten in a row are not late ten times."""
        wire.latency = 0.1
        with closing(socket.create_connection((HOST, wire.port))) as client:
            start = time.monotonic()
            got = 0
            for _ in range(10):
                client.sendall(b"PING\r\n")
                time.sleep(0.01)
            while got < 70:
                got += len(client.recv(100))
            assert 0.19 <= time.monotonic() - start < 0.5

    def test_stall_holds_and_resume_delivers(self, wire: FaultProxy) -> None:
        """Nothing is lost in a stall."""
        with closing(socket.create_connection((HOST, wire.port))) as client:
            wire.stall()
            client.sendall(b"PING\r\n")
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.recv(100)
            wire.resume()
            client.settimeout(2)
            assert client.recv(100) == b"+PONG\r\n"

    def test_cut_resets_open_connections_only(self, wire: FaultProxy) -> None:
        """The next connection works."""
        with closing(socket.create_connection((HOST, wire.port))) as client:
            client.sendall(b"PING\r\n")
            client.recv(100)
            wire.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(100)
        with connected(wire.url()) as client:
            assert client.ping()

    def test_cut_after_ends_in_the_middle_of_a_reply(self, wire: FaultProxy) -> None:
        """Exactly so many bytes arrive, then the connection breaks, once."""
        wire.cut_after(3)
        with closing(socket.create_connection((HOST, wire.port))) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PO"
            with pytest.raises(ConnectionResetError):
                client.recv(100)
        with connected(wire.url()) as client:
            assert client.ping()

    def test_half_open_connection_is_dead_and_stays_open(self, wire: FaultProxy, server: Server) -> None:
        """Not even the end of the server's side is passed on; a new connection works."""
        with closing(socket.create_connection((HOST, wire.port))) as client:
            client.sendall(b"PING\r\n")
            client.recv(100)
            wire.half_open()
            client.sendall(b"PING\r\n")
            server.admin.client_kill_filter(_type="normal", skipme=True)
            client.settimeout(0.05)
            with pytest.raises(TimeoutError):
                client.recv(100)
            with connected(wire.url()) as other:
                assert other.ping()

    def test_silent_peer_accepts_and_never_answers(self, wire: FaultProxy) -> None:
        """Nor does it bother the server."""
        wire.silent(on=True)
        with closing(socket.create_connection((HOST, wire.port), timeout=0.05)) as client:
            client.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                client.recv(100)
        assert wire.to_server.bytes == 0

    def test_passes_the_end_of_the_server_on(
        self, own_server: OwnServer, proxy: Callable[[Server], FaultProxy]
    ) -> None:
        """A server that goes away closes its clients' connections, and new ones are refused at once."""
        server = own_server()
        wire = proxy(server)
        with closing(socket.create_connection((HOST, wire.port), timeout=2)) as client:
            client.sendall(b"PING\r\n")
            client.recv(100)
            server.kill()
            assert client.recv(100) == b""
        with (
            pytest.raises(ConnectionResetError),
            closing(socket.create_connection((HOST, wire.port), timeout=2)) as client,
        ):
            client.recv(100)


@pytest.mark.every_loop
async def test_every_loop_means_each_of_them(request: pytest.FixtureRequest) -> None:
    """The variant named in the test's id is the loop it runs on."""
    variant = request.node.callspec.id
    loop = asyncio.get_running_loop()
    assert type(loop).__module__.startswith("uvloop") == (variant == "uvloop")
    assert (loop.get_task_factory() is not None) == (variant == "eager")


async def test_blocking_calls_are_found() -> None:
    """A sleep that holds the loop is an error where it is looked for."""
    with blockbuster_ctx("tests"), pytest.raises(BlockingError, match=r"time\.sleep"):
        time.sleep(0)  # noqa: ASYNC251 - the point of the test
