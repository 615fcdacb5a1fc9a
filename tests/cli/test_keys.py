"""Fields become keys: what is different stays different, and what is no key is malformed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiolimit.cli.formats import Malformed
from aiolimit.cli.keys import KeyTemplate
from tests.cli.support import any_time

FIELDS: dict[str, Any] = {"ip": "192.0.2.1", "path": "/", "n": 7, "x": 1.5, "yes": True, "nested": {"id": "u1"}}


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("ip", "192.0.2.1"),
        ("ip,path", "192.0.2.1|/"),
        (" ip , path ", "192.0.2.1|/"),
        ("{ip}:{path}", "192.0.2.1:/"),
        ("v1/{ nested.id }", "v1/u1"),
        ("nested.id", "u1"),
        ("n", "7"),
        ("x,yes", "1.5|true"),
    ],
)
def test_a_key_is_made_of_the_named_fields(template: str, key: str) -> None:
    """One field as it is, several joined, a template literally; numbers and booleans as JSON writes them."""
    assert KeyTemplate(template).key(FIELDS) == key


@any_time
@given(st.lists(st.text(), min_size=2, max_size=3), st.lists(st.text(), min_size=2, max_size=3))
def test_different_values_of_several_fields_never_give_one_key(first: list[str], second: list[str]) -> None:
    """The separator and the escape are escaped within values."""

    def key(values: list[str]) -> str:
        return KeyTemplate(",".join("abc"[: len(values)])).key(dict(zip("abc", values, strict=False)))

    # Half surrogate pairs are escaped afterwards and are not in the promise: no UTF-8 log has them.
    if not any("\ud800" <= letter <= "\udfff" for value in first + second for letter in value):
        assert (key(first) == key(second)) == (first == second)


@any_time
@given(st.text(alphabet=st.characters(), min_size=1))
def test_every_key_can_be_written_as_utf8(value: str) -> None:
    """A key that is no UTF-8 would be refused by the limiter."""
    assert KeyTemplate("a").key({"a": value}).encode()


def test_half_a_surrogate_pair_is_escaped() -> None:
    """JSON can say it, but no key can be it."""
    assert KeyTemplate("a").key({"a": "x\ud83d"}) == "x\\ud83d"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is empty"),
        (None, "is null"),
        ([1], "is a list, not a plain value"),
        ({"b": 1}, "is an object, not a plain value"),
        pytest.param(10**5000, "is too long a number", id="10**5000"),
    ],
)
def test_a_value_that_is_no_key_is_malformed(value: object, reason: str) -> None:
    """Nothing, or more than one value."""
    with pytest.raises(Malformed, match=f"'a' {reason}"):
        KeyTemplate("a").key({"a": value})


def test_a_missing_field_is_malformed() -> None:
    """The reason names the field."""
    with pytest.raises(Malformed, match="no field 'user'"):
        KeyTemplate("ip,user").key(FIELDS)


@pytest.mark.parametrize("text", ["", ",", "ip,", "{}", "{ip", "ip}", "{{ip}}", "x{ip}{"])
def test_a_template_that_names_no_field_is_refused(text: str) -> None:
    """With an example of what would be right."""
    with pytest.raises(ValueError, match="as in"):
        KeyTemplate(text)
