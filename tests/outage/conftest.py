"""The fixtures of integration, and peers that are no server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ..integration.conftest import backend_of, clean_loop, small_heap, wire
from .faults import Peer

__all__ = ["backend_of", "clean_loop", "peer", "small_heap", "wire"]


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A listener that is no server: it answers what the test says."""
    listening = await Peer().start()
    yield listening
    await listening.stop()
    await asyncio.sleep(0)
