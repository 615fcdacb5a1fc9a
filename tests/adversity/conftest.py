"""The same fixtures as for integration."""

from __future__ import annotations

from ..integration.conftest import backend_of, clean_loop, policy, small_heap, wire

__all__ = ["backend_of", "clean_loop", "policy", "small_heap", "wire"]
