"""Where decisions are taken: in this process, or on a server."""

from __future__ import annotations

from .base import Answers, Backend, Place
from .memory import MemoryBackend
from .redis import RedisBackend

__all__ = ["Answers", "Backend", "MemoryBackend", "Place", "RedisBackend"]
