"""What the scripts may say: the rules of ``lua/README.md`` that can be checked without running them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiolimit import scripts

from ..support import REPOSITORY

FILES = sorted((REPOSITORY / "lua").rglob("*.lua"))
PACKAGE = sorted((REPOSITORY / "aiolimit").rglob("*.py"))

KEY_ONLY = {"GET", "PTTL"}
COMMANDS = {"TIME", "MGET", "GET", "SET", "DEL", "PTTL", "PEXPIRE", "GETRANGE", "SETRANGE"}
"""All that a user of the server needs the right to, beside EVAL and EVALSHA; ``docs`` and the error table name them."""

_LITERAL = r"'[^']*'|\d+"
_TEXT_MAKERS = {"expiry", "format", "header", "whole_text", "started", "slot:rep"}
"""Functions of the scripts whose result is text."""
_TEXTS = {"text", "piece", "count == PIECE and piece or slot:rep(count)"}
_KEY = re.compile(r"key|unpack\(KEYS\)|[\w\[\]]+\.key|\([\w\[\] ]+\)\.key")
"""An element of KEYS, under the names that `test_names_of_keys_stand_for_keys` follows."""
NUMBERS = {
    "now",
    "op",
    "cost",
    "limit",
    "window",
    "tolerance",
    "unit",
    "gain",
    "span",
    "full",
    "tick",
    "steps",
    "most",
    "level",
    "held",
    "since",
    "used",
    "previous",
    "current",
    "capacity",
    "oldest",
    "excess",
    "last",
    "fresh",
    "at",
    "from",
    "past",
    "to",
    "count",
    "length",
    "left",
    "reset_us",
    "retry_us",
    "granted",
    "remaining",
}
"""Names that the scripts give to numbers."""


def code(path: Path) -> str:
    """A file without its comments."""
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


def calls(text: str) -> list[list[str]]:
    """The arguments of every ``redis.call`` and ``redis.pcall``, as they are written."""
    found = []
    for match in re.finditer(r"redis\.p?call\(", text):
        depth, start, arguments, quoted = 1, match.end(), [], False
        for position in range(match.end(), len(text)):
            char = text[position]
            if char == "'":
                quoted = not quoted
            elif quoted:
                continue
            elif char in "([{":
                depth += 1
            elif char in ")]}":
                depth -= 1
            if (char == "," and depth == 1) or depth == 0:
                arguments.append(text[start:position].strip())
                start = position + 1
            if depth == 0:
                break
        found.append(arguments)
    return found


ALL_CALLS = [(path, arguments) for path in FILES for arguments in calls(code(path))]


def test_the_calls_are_found() -> None:
    """The tests below look at something."""
    assert len(ALL_CALLS) >= 10
    assert calls("redis.call('SET', key, f(a, {b, c}), 'P,X', g[1])") == [
        ["'SET'", "key", "f(a, {b, c})", "'P,X'", "g[1]"]
    ]


@pytest.mark.parametrize(("path", "arguments"), ALL_CALLS, ids=lambda value: getattr(value, "name", None))
def test_every_command_is_a_known_one(path: Path, arguments: list[str]) -> None:
    """Written out, in capitals, and on the list of rights."""
    assert arguments[0].strip("'") in COMMANDS


@pytest.mark.parametrize(("path", "arguments"), ALL_CALLS, ids=lambda value: getattr(value, "name", None))
def test_every_key_comes_from_keys(path: Path, arguments: list[str]) -> None:
    """No key is built inside a script, so that clusters and key permissions hold."""
    if arguments[0] != "'TIME'":
        assert _KEY.fullmatch(arguments[1])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_names_of_keys_stand_for_keys(path: Path) -> None:
    """What the calls use as a key is bound to an element of KEYS, or handed on, wherever it is bound."""
    text = code(path)
    assert ".. key" not in text
    assert "key .." not in text
    for value in re.findall(r"\bkey = ([^,\n}]+)", text):
        assert value.strip() == "key"
    for bound in re.findall(r"for (?:\w+, )?key(?:, \w+)? in (\w+\(.*?\)) do", text):
        assert bound in {"ipairs(KEYS)", "pairs(first)", "ipairs(order)"}
    if "order[" in text:
        assert set(re.findall(r"order\[#order \+ 1\] = (\w+)", text)) == {"key"}
    if "first[" in text:
        assert set(re.findall(r"first\[(\w+)\] = ", text)) == {"key"}


@pytest.mark.parametrize(("path", "arguments"), ALL_CALLS, ids=lambda value: getattr(value, "name", None))
def test_no_number_is_formatted_by_lua_itself(path: Path, arguments: list[str]) -> None:
    """Lua writes 14 digits, and 2e+08 on some servers: a number that reaches the server as a value or an expiry is made
    text by %d first. Offsets into a string are small enough: a log of a million units has seven million bytes.
    """
    offsets = {"GETRANGE": (2, 3), "SETRANGE": (2,)}.get(arguments[0].strip("'"), ())
    for position, argument in enumerate(arguments):
        if argument in _TEXTS or _KEY.fullmatch(argument) or re.fullmatch(_LITERAL, argument):
            continue
        assert argument.partition("(")[0] in _TEXT_MAKERS or position in offsets, argument


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_numbers_are_formatted_with_d(path: Path) -> None:
    """The only conversions are %d, with or without a width; nothing is made text by ``..`` or ``tostring``."""
    text = code(path)
    assert "tostring" not in text
    for form in re.findall(r"\('([^']*)'\):format", text):
        assert set(re.findall(r"%\d*[a-z]", form)) <= {"%d", "%07d", "%016d"}
    joined = re.findall(r"([\w.]+) \.\.", text) + re.findall(r"\.\. ([\w.]+)(?![\w.]*\()", text)
    assert not [side for side in joined if side.rpartition(".")[2].isdecimal() or side.rpartition(".")[2] in NUMBERS]


@pytest.mark.parametrize("name", scripts.NAMES)
def test_time_is_read_once(name: str) -> None:
    """Inside a script it may go on."""
    assert scripts.load(name).text.count("'TIME'") == 1


@pytest.mark.parametrize("name", scripts.NAMES)
def test_a_script_says_what_it_takes_and_gives(name: str) -> None:
    """Its first lines are the contract."""
    head = (REPOSITORY / "lua" / f"{name}.lua").read_text(encoding="utf-8").splitlines()[:10]
    for word in ("KEYS", "ARGV", "Reply", "State"):
        assert any(line.startswith(f"-- {word} ") for line in head)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_is_short(path: Path) -> None:
    """Eighty lines without its pieces, or a reason: the ring and its log are a third comments."""
    most = {"ring_writes.lua": 100, "sliding_log.lua": 100}.get(path.name, 80)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_nothing_loads_scripts_for_good_or_without_keys(path: Path) -> None:
    """SCRIPT LOAD may be denied, and a script without keys cannot be routed: neither is ever sent."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"SCRIPT[\" ,b]+LOAD|script_load\(|register_script", text)
    assert not re.search(r"\.eval(sha)?\([^)]*, 0[,)]", text)
