"""Where decisions are taken: in this process, or on a server."""

from __future__ import annotations

from .base import Backend, Place
from .memory import MemoryBackend
from .redis import RedisBackend

__all__ = ["Backend", "MemoryBackend", "Place", "RedisBackend"]
