"""``--key``: how the fields of a record become the key that is limited."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .formats import Malformed, lookup

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEPARATOR = "|"


class KeyTemplate:
    r"""``ip``, several fields as ``ip,path``, or a template as ``{ip}:{path}``.

    Several fields are joined by ``|``, with ``\`` before a ``|`` or ``\`` in a value, so that different values never
    give one key. A template is taken literally.

    Raises:
        ValueError: When the text names no field or a brace has no partner; the message is the reason.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._literals: list[str] | None = None
        if "{" in text or "}" in text:
            parts = re.split(r"\{([^{}]*)\}", text)
            self._literals, names = parts[::2], parts[1::2]
            if any(brace in literal for literal in self._literals for brace in "{}"):
                raise ValueError("every { needs its }, as in '{ip}:{path}'")
        else:
            names = text.split(",")
        self.fields = tuple(name.strip() for name in names)
        if not self.fields or not all(self.fields):
            raise ValueError("a name is empty; give fields as in 'ip', 'ip,path' or '{ip}:{path}'")

    def key(self, fields: Mapping[str, Any]) -> str:
        """The key of a record; `Malformed` when it lacks a field, or the key would be empty."""
        values = [_plain(lookup(fields, name), name) for name in self.fields]
        if self._literals is not None:
            first, *rest = self._literals
            key = first + "".join(value + literal for value, literal in zip(values, rest, strict=True))
        elif len(values) == 1:
            key = values[0]
        else:
            key = _SEPARATOR.join(re.sub(r"[\\|]", r"\\\g<0>", value) for value in values)
        if not key:
            raise Malformed(f"the field {self.fields[0]!r} is empty")
        # A JSON escape may be half a surrogate pair, which no key can be.
        return key if key.isascii() else key.encode(errors="backslashreplace").decode()


def _plain(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:
            raise Malformed(f"the field {name!r} is too long a number") from None
    if value is None:
        raise Malformed(f"the field {name!r} is null")
    raise Malformed(f"the field {name!r} is {'a list' if isinstance(value, list) else 'an object'}, not a plain value")
