"""How a user's key becomes a Redis key.

::

    prefix : format version : {shard} : limiter name : policy tag : user key

Two different inputs never share a key. The prefix has no brace, so the first brace ends it; the limiter's name is
percent-encoded, so it has no colon; the tag is a fixed word; and the user's text comes last, as it is, or as a digest
under a tag of its own. The hash tag, which places the key in a Redis Cluster, is chosen from a fixed table: no text of
a user reaches it.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote
from zlib import crc32

from redis.crc import key_slot

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
"""The version of what is stored. Another version never reads this one's keys."""
SLOTS = 16_384
"""The hash slots of a Redis Cluster."""
MAX_NAME = 100
"""The most characters of a prefix or a limiter's name."""
MAX_RAW_BYTES = 200
"""A longer user key is stored as its digest."""

Key = str | bytes


def key_bytes(key: Key) -> bytes:
    """Check a user's key and give its bytes: a text in UTF-8.

    Raises:
        TypeError: When it is neither text nor bytes.
        ValueError: When it is empty or holds a lone surrogate.
    """
    if isinstance(key, str):
        try:
            raw = key.encode()
        except UnicodeEncodeError:
            raise ValueError("key holds a lone surrogate, which is no text: pass bytes instead") from None
    elif isinstance(key, bytes):
        raw = key
    else:
        raise TypeError(f"key must be str or bytes, not {type(key).__name__}: write the identity as text")
    if not raw:
        raise ValueError("key is empty: give every caller an identity, or one constant for a limit they all share")
    return raw


def checked_name(what: str, name: object, most: int = MAX_NAME) -> str:
    """Check a text that becomes part of every key: a prefix, or the name of a limiter.

    Raises:
        ValueError: When it is no text, empty, longer than ``most`` characters, or holds a lone surrogate.
    """
    if not isinstance(name, str) or not 0 < len(name) <= most or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"{what} must be a text of 1 to {most} characters without lone surrogates, not {name!r}")
    return name


@cache
def shard_tags(shards: int) -> tuple[bytes, ...]:
    """The hash tags of ``shards`` shards: the smallest numbers whose slots are evenly spaced, in order of the slots."""
    wanted = {index * SLOTS // shards: index for index in range(shards)}
    tags = [b""] * shards
    missing = shards
    number = 0
    while missing:
        tag = b"%d" % number
        index = wanted.pop(key_slot(tag), None)
        if index is not None:
            tags[index] = tag
            missing -= 1
        number += 1
    return tuple(tags)


class KeySpace:
    """The Redis keys of one policy of one limiter.

    Args:
        prefix: What every key starts with.
        name: The limiter's name.
        tag: The policy's tag: its algorithm and, later, its place among several.
        shards: How many hash tags the keys are spread over, 1 to 16,384.
        digest: Store a digest of every user key, so that none can be read in the store.
        group: The text that decides the shard of a key; the key itself unless given.
    """

    __slots__ = ("_digest", "_digested", "_group", "_raw")

    def __init__(
        self,
        prefix: str,
        name: str,
        tag: str,
        *,
        shards: int,
        digest: bool = False,
        group: Callable[[Key], Key] | None = None,
    ) -> None:
        head = f"{prefix}:{FORMAT}:".encode()
        place = quote(name, safe="").encode()
        tags = shard_tags(shards)
        self._raw = [b"%b{%b}:%b:%b:" % (head, shard, place, tag.encode()) for shard in tags]
        self._digested = [b"%b{%b}:%b:%b#:" % (head, shard, place, tag.encode()) for shard in tags]
        self._digest = digest
        self._group = group

    def key(self, key: Key) -> bytes:
        """The Redis key of a user's key; raises as `key_bytes` does."""
        raw = key.encode() if type(key) is str and key and key.isascii() else key_bytes(key)
        group = self._group
        shard = crc32(raw if group is None else key_bytes(group(key))) % len(self._raw)
        if self._digest or len(raw) > MAX_RAW_BYTES:
            return self._digested[shard] + blake2b(raw, digest_size=20).hexdigest().encode()
        return self._raw[shard] + raw
