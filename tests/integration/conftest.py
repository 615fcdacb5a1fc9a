"""Backends that end with the test, and a loop that nothing may be left on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

import pytest

from aiolimit import RedisBackend
from aiolimit.policies import Policy

from ..conformance.stores import PATIENCE, kind_name, policies
from ..support.proxy import FaultProxy
from ..support.servers import Server


class BackendOf(Protocol):
    """What `backend_of` is: `RedisBackend.from_url`, with a deadline that a busy machine keeps."""

    def __call__(self, url: str, *, deadline: float = PATIENCE, **options: Any) -> RedisBackend:
        """Make a backend that is closed after the test."""
        ...


@pytest.fixture(scope="session")
def small_heap() -> Iterator[None]:
    """Leave what is there already out of every collection: with it, one takes a fifth of a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
async def clean_loop(small_heap: None) -> AsyncIterator[None]:
    """Nothing of the test may be left on its loop: no task, and no error that nobody heard of."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
    assert asyncio.all_tasks() <= {asyncio.current_task()}


@pytest.fixture
async def backend_of(clean_loop: None) -> AsyncIterator[BackendOf]:
    """Makes backends at URLs, and closes them."""
    made: list[RedisBackend] = []

    def make(url: str, *, deadline: float = PATIENCE, **options: Any) -> RedisBackend:
        made.append(RedisBackend.from_url(url, deadline=deadline, **options))
        return made[-1]

    yield make
    for backend in made:
        await backend.aclose()


@pytest.fixture
def wire(server: Server, proxy: Callable[[Server], FaultProxy]) -> FaultProxy:
    """A wire to the server that fails on demand. Its methods wait for its thread: not on the test's loop."""
    return proxy(server)


@pytest.fixture(params=policies(), ids=kind_name)
def policy(request: pytest.FixtureRequest) -> Policy:
    """A policy of each kind: ten units an hour, ten at once."""
    chosen: Policy = request.param
    return chosen
