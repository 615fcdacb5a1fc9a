"""No two identities share a Redis key, whatever their text."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from redis.crc import key_slot

from aiolimit.keys import MAX_RAW_BYTES, SLOTS, KeySpace, shard_tags

_TRICKY = "a:{}%#/ 1*\r\n\0é"
_keys = st.one_of(
    st.text(min_size=1),
    st.text(alphabet=_TRICKY, min_size=1, max_size=8),
    st.binary(min_size=1),
    st.binary(min_size=MAX_RAW_BYTES - 2, max_size=MAX_RAW_BYTES + 60),
).filter(lambda key: isinstance(key, bytes) or not any("\ud800" <= c <= "\udfff" for c in key))
_names = (st.text(min_size=1, max_size=100) | st.text(alphabet=_TRICKY, min_size=1, max_size=8)).filter(
    lambda name: not any("\ud800" <= c <= "\udfff" for c in name)
)
_prefixes = st.text(alphabet="ab:1#% é", min_size=1, max_size=8)
_tags = st.sampled_from(["tb", "fw", "sw", "sl"])
_identities = st.tuples(_prefixes, _names, _tags, _keys)


def raw(key: str | bytes) -> bytes:
    """The bytes of a key."""
    return key.encode() if isinstance(key, str) else key


def redis_key(identity: tuple[str, str, str, str | bytes], shards: int, **options: Any) -> bytes:
    """The Redis key of a prefix, name, tag and key."""
    prefix, name, tag, key = identity
    return KeySpace(prefix, name, tag, shards=shards, **options).key(key)


@settings(max_examples=200)
@given(
    one=_identities,
    other=_identities,
    same=st.integers(0, 15),
    digest=st.booleans(),
    shards=st.sampled_from([1, 2, 64]),
)
@example(one=("p", "x", "tb", "y:1"), other=("p", "x:y", "tb", "1"), same=0, digest=False, shards=1)
@example(one=("p", "x:y", "tb", "1"), other=("p", "x%3Ay", "tb", "1"), same=0, digest=False, shards=1)
@example(one=("p:1", "x", "tb", "1"), other=("p", "x", "tb", "1"), same=0, digest=False, shards=1)
@example(one=("p", "x", "tb", "#:1"), other=("p", "x", "tb", ":1"), same=0, digest=False, shards=1)
@example(one=("p", "x", "tb", "a"), other=("p", "x", "tb", "a "), same=0, digest=True, shards=64)
def test_two_identities_never_share_a_key(
    one: tuple[str, str, str, str | bytes],
    other: tuple[str, str, str, str | bytes],
    same: int,
    digest: bool,
    shards: int,
) -> None:
    """Whatever parts of them are equal, and whatever their text looks like."""
    other = tuple(a if same >> part & 1 else b for part, (a, b) in enumerate(zip(one, other, strict=True)))  # type: ignore[assignment]
    assume((*one[:3], raw(one[3])) != (*other[:3], raw(other[3])))
    assert redis_key(one, shards, digest=digest) != redis_key(other, shards, digest=digest)


@given(identity=_identities)
def test_a_digest_is_never_taken_for_a_key(identity: tuple[str, str, str, str | bytes]) -> None:
    """Not even by who sends the digest of another's long key as a key."""
    long = redis_key((*identity[:3], b"x" * (MAX_RAW_BYTES + 1)), 1)
    digest = long.rpartition(b":")[2]
    for text in (digest, b"#:" + digest, b":" + digest):
        assert redis_key((*identity[:3], text), 1) != long


@given(identity=_identities, shards=st.sampled_from([1, 64, SLOTS]))
def test_equal_identities_share_it(identity: tuple[str, str, str, str | bytes], shards: int) -> None:
    """Text and its bytes, in any process: nothing in a key is random."""
    prefix, name, tag, key = identity
    assert redis_key(identity, shards) == redis_key((prefix, name, tag, raw(key)), shards)


@given(identity=_identities)
def test_a_stored_key_is_bounded(identity: tuple[str, str, str, str | bytes]) -> None:
    """However long the user's text is."""
    prefix, name, _, _ = identity
    for size in (1, MAX_RAW_BYTES, MAX_RAW_BYTES + 1, 100_000):
        stored = redis_key((*identity[:3], b"x" * size), 64)
        assert len(stored) <= 2 * len(prefix) + 12 * len(name) + 20 + MAX_RAW_BYTES


@given(identity=_identities, shards=st.sampled_from([1, 7, 64]))
def test_only_the_shard_places_a_key(identity: tuple[str, str, str, str | bytes], shards: int) -> None:
    """No brace in a prefix, name or key changes the slot: it is the slot of one of the shards' tags."""
    slots = {key_slot(tag) for tag in shard_tags(shards)}
    assert key_slot(redis_key(identity, shards)) in slots


@given(one=_keys, other=_keys, shards=st.sampled_from([1, 7, 64]))
def test_keys_of_one_group_lie_together(one: str | bytes, other: str | bytes, shards: int) -> None:
    """In one slot, and still apart."""
    space = KeySpace("p", "n", "tb", shards=shards, group=lambda _: "tenant")
    assert key_slot(space.key(one)) == key_slot(space.key(other))
    assert (space.key(one) == space.key(other)) == (raw(one) == raw(other))


@settings(max_examples=30)
@given(digest=st.booleans())
def test_a_thousand_hostile_keys_are_a_thousand(digest: bool) -> None:
    """Everything of up to three characters that mean something somewhere."""
    alphabet = ":{}%#a1 *"
    texts = [a + b + c for a in ["", *alphabet] for b in ["", *alphabet] for c in alphabet]
    space = KeySpace("p", "n", "tb", shards=64, digest=digest)
    assert len({space.key(text) for text in set(texts)}) == len(set(texts))
