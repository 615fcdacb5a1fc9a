"""Keys: what may be one, where it is stored, and how the shards lie."""

from __future__ import annotations

from typing import Any

import pytest
from redis.crc import key_slot

from aiolimit.keys import FORMAT, MAX_RAW_BYTES, SLOTS, KeySpace, key_bytes, shard_tags


@pytest.mark.parametrize(
    ("key", "raw"), [("a", b"a"), ("é", b"\xc3\xa9"), (b"\xff\x00", b"\xff\x00"), (" ", b" "), ("\0", b"\0")]
)
def test_text_is_utf8_and_bytes_are_themselves(key: str | bytes, raw: bytes) -> None:
    """Nothing is trimmed or folded."""
    assert key_bytes(key) == raw


@pytest.mark.parametrize("key", ["", b""])
def test_an_empty_key_is_refused(key: str | bytes) -> None:
    """A missing identity is not everybody's identity."""
    with pytest.raises(ValueError, match="key is empty: give every caller an identity"):
        key_bytes(key)


@pytest.mark.parametrize("key", [None, True, 5, 1.5, ["a"], ("a", 1), bytearray(b"a"), memoryview(b"a"), object()])
def test_anything_else_is_no_key(key: Any) -> None:
    """The error names the type that came."""
    with pytest.raises(TypeError, match=f"key must be str or bytes, not {type(key).__name__}"):
        key_bytes(key)


@pytest.mark.parametrize("key", ["\ud800", "a\udfffb"])
def test_half_a_character_is_no_text(key: str) -> None:
    """What came from bytes should stay bytes."""
    with pytest.raises(ValueError, match="lone surrogate"):
        key_bytes(key)


def test_a_redis_key_tells_its_parts() -> None:
    """Prefix, format version, shard, limiter, algorithm, user key."""
    key = KeySpace("p", "api v1:x", "tb", shards=1).key("user:{42}")
    assert key == b"p:%d:{%b}:api%%20v1%%3Ax:tb:user:{42}" % (FORMAT, shard_tags(1)[0])


@pytest.mark.parametrize("length", [MAX_RAW_BYTES + 1, 10_000, 1_000_000])
def test_a_long_key_is_stored_as_a_digest(length: int) -> None:
    """Of a fixed size, equal for equal keys; one byte apart is another."""
    space = KeySpace("p", "n", "tb", shards=1)
    one = space.key("x" * length)
    assert one == space.key(b"x" * length)
    assert one != space.key("x" * (length - 1) + "y")
    assert len(one) < 80
    assert b"xxx" not in one


def test_a_key_of_two_hundred_bytes_is_stored_as_it_is() -> None:
    """The bound counts bytes, not characters."""
    space = KeySpace("p", "n", "tb", shards=1)
    assert space.key("x" * MAX_RAW_BYTES).endswith(b":" + b"x" * MAX_RAW_BYTES)
    assert b"\xc3\xa9" not in space.key("é" * (MAX_RAW_BYTES // 2 + 1))


def test_secret_keys_are_stored_as_digests() -> None:
    """Where that is asked for, all of them."""
    key = KeySpace("p", "n", "tb", shards=1, digest=True).key("Bearer abc")
    assert b"Bearer" not in key
    assert b"abc" not in key


def test_a_group_places_its_keys_together() -> None:
    """By what the callable gives for each key, which has to be a key itself."""
    space = KeySpace("p", "n", "tb", shards=64, group=lambda key: str(key).partition(":")[0])
    slots = {key_slot(space.key(f"tenant:{number}")) for number in range(50)}
    assert len(slots) == 1
    assert len({key_slot(space.key(f"{number}:a")) for number in range(200)}) > 20
    bad: Any = lambda _: None  # noqa: E731
    with pytest.raises(TypeError, match="key must be str or bytes, not NoneType"):
        KeySpace("p", "n", "tb", shards=64, group=bad).key("a")


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 64, 1000, 4096])
def test_the_slots_of_the_shards_are_evenly_spaced(shards: int) -> None:
    """Over all slots of a cluster."""
    slots = [key_slot(tag) for tag in shard_tags(shards)]
    assert slots == [index * SLOTS // shards for index in range(shards)]


def test_keys_spread_over_the_shards() -> None:
    """No shard has more than twice its share."""
    space = KeySpace("p", "n", "tb", shards=16)
    counts: dict[int, int] = {}
    for number in range(16_000):
        slot = key_slot(space.key(f"user:{number}"))
        counts[slot] = counts.get(slot, 0) + 1
    assert len(counts) == 16
    assert max(counts.values()) < 2000
