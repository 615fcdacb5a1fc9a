"""`store` is each backend in turn, and `policy` each kind of policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from aiolimit import Limiter
from aiolimit.policies import Policy

from ..conftest import _require
from ..support.binaries import Kind, find_binary
from ..support.servers import Server
from .stores import MemoryStore, ServerStore, Store, kind_name, policies

LimiterOf = Callable[..., Limiter]

on_servers = pytest.mark.parametrize("store", ["redis", "valkey"], indirect=True)
in_memory = pytest.mark.parametrize("store", ["memory"], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip eager tasks where there are none before anything is set up: many tests in a row cannot skip in set-up."""
    if hasattr(asyncio, "eager_task_factory"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "eager" in item.callspec.id.split("-"):
            item.add_marker(pytest.mark.skip(reason="eager tasks need Python 3.12"))


def _clocked(kind: Kind, clock_shim: Path) -> Iterator[Server]:
    _require(find_binary(kind), f"no {kind} server found")
    with Server(kind, clock_shim=clock_shim) as server:
        yield server


@pytest.fixture(scope="session")
def clocked_redis(clock_shim: Path) -> Iterator[Server]:
    """The session's Redis with a clock to step."""
    yield from _clocked("redis", clock_shim)


@pytest.fixture(scope="session")
def clocked_valkey(clock_shim: Path) -> Iterator[Server]:
    """The session's Valkey with a clock to step."""
    yield from _clocked("valkey", clock_shim)


@pytest.fixture(params=["memory", "redis", "valkey"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty backend; its clock stands at midnight. Tests for servers alone are marked `on_servers`."""
    if request.param == "memory":
        yield MemoryStore()
        return
    server: Server = request.getfixturevalue(f"clocked_{request.param}")
    server.reset()
    yield ServerStore(server)
    assert server.immortal_keys() == [], "keys without an expiry"


@pytest.fixture(params=policies(), ids=kind_name)
def policy(request: pytest.FixtureRequest) -> Policy:
    """A policy of each kind: ten units an hour, ten at once."""
    chosen: Policy = request.param
    return chosen


@pytest.fixture
async def closing(store: Store) -> AsyncIterator[None]:
    """Closes the store's connections on the loop that opened them."""
    yield
    await store.backend.aclose()


@pytest.fixture
def limiter(store: Store, policy: Policy, closing: None) -> Limiter:
    """A limiter of this policy on this backend, of the kind that refuses when in doubt."""
    return Limiter(policy, store.backend, failure="closed")


@pytest.fixture
def limiter_of(store: Store, closing: None) -> LimiterOf:
    """Makes limiters on the test's backend."""

    def make(policy: Policy | str, name: str = "default") -> Limiter:
        return Limiter(policy, store.backend, name=name, failure="closed")

    return make
