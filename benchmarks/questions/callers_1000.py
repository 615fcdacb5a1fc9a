"""How many decisions a second for a thousand callers at once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..many_callers import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runner import Bench, Table


def run(bench: Bench) -> Iterator[Table]:
    """A thousand callers."""
    yield from measure(bench, 1000, least_over_bare=None, least_over_peers=15.0)
