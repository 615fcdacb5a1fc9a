"""The same fixtures as for integration."""

from __future__ import annotations

from ..integration.conftest import backend_of, clean_loop, policy, wire

__all__ = ["backend_of", "clean_loop", "policy", "wire"]
