"""Real Redis and Valkey processes for tests: each on a free loopback port, in a directory of its own, ended by its pid.

A `Server` is an ordinary object, so anything can use one (fixtures, documentation examples, benchmarks)::

    with Server("valkey") as server:
        server.admin.set("a", 1)
        print(server.url())
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .binaries import Kind, find_binary
from .clock_shim import ClockOffset
from .reaper import reaper
from .tls import TlsFiles

HOST = "127.0.0.1"
READY_WITHIN = 10.0  # seconds; a server takes 20 to 50 ms, a noisy machine much longer
START_ATTEMPTS = 5
CLOCK_READ_EVERY = 0.002  # seconds; see set_clock_offset

# Below the ephemeral range of Linux, so that no outgoing connection can sit on the port of a server that restarts.
_PORTS = range(20_000, 32_000)

_BASE_CONFIG: Mapping[str, str] = {
    "bind": HOST,
    "protected-mode": "no",
    "save": "",
    "appendonly": "no",
    "daemonize": "no",
    "enable-debug-command": "yes",
    "unixsocketperm": "700",
    "loglevel": "notice",
}


class ServerError(RuntimeError):
    """A server that did not start, or has ended by itself; the text carries the end of its log."""


def free_port() -> int:
    """A loopback port that nothing listens on right now."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class Server:
    """One server process.

    `kind` is "redis" or "valkey". `config` adds to or overrides settings by their names in the configuration file, and
    `args` are further words for the command line. `clock_shim` is the library built by `clock_shim.build`: with it
    `set_clock_offset` moves the server's wall clock. With `tls` the port speaks TLS only; `password` is that of the
    default user. The unix socket is always there, and `admin` goes through it.
    """

    def __init__(
        self,
        kind: Kind,
        *,
        config: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        clock_shim: Path | None = None,
        tls: TlsFiles | None = None,
        password: str | None = None,
    ) -> None:
        binary = find_binary(kind)
        if binary is None:
            raise ServerError(f"no {kind} server on this machine")
        self.kind: Kind = kind
        self.port = 0  # chosen by the first start, then kept
        self.tls = tls
        self.password = password
        self.directory = Path(tempfile.mkdtemp(prefix="aiolimit-"))
        self.socket_path = self.directory / "s"  # short: a unix socket's path has room for 107 bytes
        self.log_path = self.directory / "log"
        self._binary = binary
        self._config = {**_BASE_CONFIG, **(config or {})}
        self._args = tuple(args)
        self._shim = clock_shim
        self._clock = ClockOffset(self.directory / "clock") if clock_shim else None
        self._process: subprocess.Popen[bytes] | None = None
        self._initial_config: dict[str, str] = {}
        self.admin: Any = redis.Redis(  # Any: the stubs of redis-py type every reply as sync or async
            unix_socket_path=str(self.socket_path),
            password=password,
            protocol=2,
            socket_timeout=READY_WITHIN,
            retry=Retry(NoBackoff(), 0),
        )

    def __repr__(self) -> str:
        state = f"pid={self._process.pid}" if self._process else "stopped"
        return f"<Server {self.kind} port={self.port} {state}>"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Addresses

    @property
    def pid(self) -> int:
        """The process id; `ServerError` when the server is not running."""
        if self._process is None:
            raise ServerError(f"{self!r} is not running")
        return self._process.pid

    def url(self, db: int = 0, *, username: str = "", password: str | None = None) -> str:
        """The TCP address, with the default user's password unless a user is named."""
        scheme, query = ("rediss", f"?ssl_ca_certs={self.tls.ca_cert}") if self.tls else ("redis", "")
        secret = password if password is not None else (self.password or "")
        login = f"{quote(username, safe='')}:{quote(secret, safe='')}@" if username or secret else ""
        return f"{scheme}://{login}{HOST}:{self.port}/{db}{query}"

    def unix_url(self, db: int = 0) -> str:
        """The address of the unix socket."""
        login = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"unix://{login}{self.socket_path}?db={db}"

    # Life and death

    def start(self) -> Self:
        """Start the process and return when it answers PING. A port lost to someone else is chosen anew, once bound
        it is kept over restarts.
        """
        assert self._process is None, f"{self!r} is running"
        keep_port = self.port != 0
        for attempt in range(1, START_ATTEMPTS + 1):
            if not keep_port:
                self.port = free_port()
            self._spawn()
            try:
                self._await_ready()
            except ServerError:
                if keep_port or attempt == START_ATTEMPTS or not self._log_says("Address already in use"):
                    raise
            else:
                break
        self._initial_config = self.admin.config_get("*")
        return self

    def stop(self) -> None:
        """End the process in the ordinary way (SIGTERM); nothing happens when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a crash does (SIGKILL)."""
        self._end(signal.SIGKILL)

    def restart(self, *, wipe: bool = True) -> None:
        """Stop and start on the same port. With `wipe` the data are gone, otherwise they are saved and loaded; the
        script cache is empty in both cases.
        """
        if not wipe:
            self.admin.save()
        self.stop()
        if wipe:
            (self.directory / "dump.rdb").unlink(missing_ok=True)
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections are accepted by the kernel, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on; it then answers what it was sent meanwhile."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop the process for good and remove its directory."""
        self.stop()
        self.admin.close()
        if self._clock:
            self._clock.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # What a test does to it, and asks of it

    def set_clock_offset(self, offset_us: int) -> None:
        """Move the server's wall clock to `offset_us` microseconds from the true time; every command sent after this
        call sees it. Valkey 9.1 reads the wall clock at most once in a millisecond and counts on monotonic time in
        between, so that is waited for.
        """
        assert self._clock is not None, f"{self!r} was started without clock_shim"
        self._clock.set(offset_us)
        time.sleep(CLOCK_READ_EVERY)

    def commandstats(self) -> dict[str, int]:
        """Calls by command name since the last `reset_stats`, those made inside scripts included; no `info`."""
        stats = self.admin.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): int(entry["calls"]) for name, entry in stats.items()}
        calls.pop("info", None)
        calls.pop("config|resetstat", None)
        return calls

    def reset_stats(self) -> None:
        """Start counting anew."""
        self.admin.config_resetstat()

    def immortal_keys(self) -> list[bytes]:
        """Every key of every database that has no expiry."""
        found: list[bytes] = []
        for name, space in self.admin.info("keyspace").items():
            if space["keys"] == space["expires"]:
                continue
            with self._database(int(name.removeprefix("db"))) as client:
                # TTL -1 is "no expiry"; -2 is a key that went while we looked, 0 one in its last millisecond
                found += [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1]
        return found

    def reset(self) -> None:
        """Bring a running server back to how it started: no data, scripts, functions, users or replication, the first
        configuration, the true time.
        """
        admin = self.admin
        if self._clock:
            self.set_clock_offset(0)
        admin.replicaof("NO", "ONE")
        self._restore_config()
        admin.client_unpause()
        for user in admin.acl_users():
            if user != "default":
                admin.acl_deluser(user)
        admin.flushall()
        admin.script_flush()
        admin.function_flush()
        admin.config_resetstat()

    # Inside

    @contextlib.contextmanager
    def _database(self, db: int) -> Iterator[Any]:
        with redis.Redis(unix_socket_path=str(self.socket_path), password=self.password, protocol=2, db=db) as client:
            yield client

    def _restore_config(self) -> None:
        now = self.admin.config_get("*")
        for name, value in self._initial_config.items():
            if now.get(name) != value:
                self.admin.config_set(name, value)

    def _command(self) -> list[str]:
        config = dict(self._config)
        config |= {"dir": str(self.directory), "unixsocket": str(self.socket_path)}
        if self.tls:
            config |= {"port": "0", "tls-port": str(self.port), **self.tls.server_config()}
        else:
            config |= {"port": str(self.port)}
        if self.password:
            config["requirepass"] = self.password
        settings = [word for name, value in config.items() for word in (f"--{name}", value)]
        return [str(self._binary), *settings, *self._args]

    def _spawn(self) -> None:
        environment = dict(os.environ)
        if self._shim and self._clock:
            environment |= {"LD_PRELOAD": str(self._shim), "AIOLIMIT_CLOCK_OFFSET": str(self._clock.path)}
        with self.log_path.open("wb") as log:
            # A session of its own: a Ctrl-C at the terminal is for the tests, which then stop the server.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        reaper().watch(self._process.pid, self.directory)

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_WITHIN
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):  # not listening yet, or still loading
                if self.admin.ping():
                    return
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                log = self.log_path.read_text(errors="replace")[-2000:]
                self.kill()
                raise ServerError(f"{self!r} {'ended' if ended else 'did not answer'} at start:\n{log}")
            time.sleep(0.005)

    def _log_says(self, text: str) -> bool:
        return text in self.log_path.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self.admin.connection_pool.disconnect()
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a frozen process takes no SIGTERM until it goes on
            try:
                process.wait(timeout=READY_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reaper().forget(process.pid)
