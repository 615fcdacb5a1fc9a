"""A switch over all limiters of the process; see `aiolimit.testing`."""

from __future__ import annotations

forced: bool | None = None
"""What every limiter answers without deciding: True, False, or None to decide."""
