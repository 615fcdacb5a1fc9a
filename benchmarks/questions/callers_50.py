"""How many decisions a second for fifty callers at once?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..many_callers import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runner import Bench, Table


def run(bench: Bench) -> Iterator[Table]:
    """Fifty callers, as many as the pool of the others has connections."""
    yield from measure(bench, 50, least_over_bare=5.0, least_over_peers=None)
