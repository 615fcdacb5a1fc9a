"""The one seam between limiters and where they decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..algorithms import Answer
    from ..decision import Source
    from ..errors import BackendError, BackendUnavailable
    from ..keys import Key
    from ..policies import Policy


Answers: TypeAlias = "list[Answer] | list[Answer | BackendUnavailable]"


class Place(NamedTuple):
    """One policy of one limiter on a backend: where its questions go.

    What the backend knows at once comes back as it is; what takes a round trip comes back as something to await. It
    fails with `BackendError` or its children or, for a key that is none, as `aiolimit.keys.key_bytes` does.
    """

    ask: Callable[..., Answer | Awaitable[Answer]]
    """Answer one question: a verb of `aiolimit.algorithms`, a key, a cost and, if not the backend's, a deadline."""
    ask_many: Callable[[int, Sequence[Key], Sequence[int]], Answers | Awaitable[Answers]]
    """Answer a batch: as many answers as keys and costs, in their order; in place of one that did not come, why."""
    decided_without: Callable[[Source, int, BackendError], None]
    """Hear that so many decisions were made without this backend, and why."""


class Backend(Protocol):
    """Decides, for all limiters that share it."""

    @property
    def source(self) -> Source:
        """What its decisions name as their source."""
        ...

    def place(self, name: str, policy: Policy, group: Callable[[Key], Key] | None = None) -> Place:
        """Prepare to decide by this policy for the limiter of this name; no I/O."""
        ...

    async def aclose(self) -> None:
        """Let go of what is held. Deciding again takes it up again."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...
