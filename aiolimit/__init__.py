"""Rate limits for asyncio: decided in this process, or by one atomic script on Redis or Valkey."""

from __future__ import annotations

from .backends import MemoryBackend, RedisBackend
from .breaker import CircuitBreaker
from .decision import Decision
from .errors import (
    AiolimitError,
    BackendClosed,
    BackendError,
    BackendOverloaded,
    BackendTimeout,
    BackendUnavailable,
    CircuitOpen,
    PolicyError,
    RateLimitExceeded,
)
from .limiter import Limiter
from .policies import FixedWindow, SlidingLog, SlidingWindow, TokenBucket

__all__ = [
    "AiolimitError",
    "BackendClosed",
    "BackendError",
    "BackendOverloaded",
    "BackendTimeout",
    "BackendUnavailable",
    "CircuitBreaker",
    "CircuitOpen",
    "Decision",
    "FixedWindow",
    "Limiter",
    "MemoryBackend",
    "PolicyError",
    "RateLimitExceeded",
    "RedisBackend",
    "SlidingLog",
    "SlidingWindow",
    "TokenBucket",
]
__version__ = "0.1.0"
