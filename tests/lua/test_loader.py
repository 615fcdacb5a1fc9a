"""How the scripts are found, put together and hashed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from aiolimit import scripts

from ..support import REPOSITORY

GOLDEN = Path(__file__).with_name("golden_shas.json")
LUA = REPOSITORY / "lua"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of scripts that the loader looks into, and no other."""
    monkeypatch.setattr(scripts, "_PLACES", (tmp_path / "first", tmp_path / "second"))
    scripts.load.cache_clear()
    for name in ("first", "second"):
        (tmp_path / name / "lib").mkdir(parents=True)
    monkeypatch.setattr(scripts, "load", scripts.load.__wrapped__)  # without its cache
    return tmp_path


def test_a_changed_script_is_a_deliberate_commit() -> None:
    """The hashes of the scripts are those on record. Servers know scripts by them: a change means that every server
    loads them anew, and that the state which is stored may mean something else.
    """
    found = {name: scripts.load(name).sha for name in scripts.NAMES}
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert found == recorded, (
        "The scripts have changed. If that is meant: check that a new script reads what the old one stored (else raise "
        f"FORMAT in aiolimit/keys.py), say so in CHANGELOG.md, and write to {GOLDEN.relative_to(REPOSITORY)}:\n"
        f"{json.dumps(found, indent=2)}"
    )


@pytest.mark.parametrize("name", scripts.NAMES)
def test_the_hash_is_the_one_that_servers_compute(name: str) -> None:
    """The SHA-1 of the text as it is sent, and the same every time."""
    script = scripts.load(name)
    assert script.sha == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert script.name == name
    assert scripts.load(name) is script


@pytest.mark.parametrize("name", scripts.NAMES)
def test_every_include_is_replaced(name: str) -> None:
    """No include is left, and each piece stands in it once."""
    source = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    text = scripts.load(name).text
    assert '-- include "' not in text
    included = re.findall(r'^-- include "(.+)"$', source, re.MULTILINE)
    assert "lib/clock.lua" in included
    for path in included:
        assert text.count((LUA / path).read_text(encoding="utf-8").rstrip("\n")) == 1


def test_every_script_is_one_of_the_names() -> None:
    """No file lies there that nothing loads, and no piece that no script includes."""
    assert {path.stem for path in LUA.glob("*.lua")} == set(scripts.NAMES)
    sources = "".join(path.read_text(encoding="utf-8") for path in LUA.glob("*.lua"))
    for path in (LUA / "lib").glob("*.lua"):
        assert f'-- include "lib/{path.name}"' in sources


@pytest.mark.parametrize("name", scripts.NAMES)
def test_tests_can_put_their_own_clock_in(name: str, tmp_path: Path) -> None:
    """In place of TIME; the rest is the same text."""
    clock = tmp_path / "clock.lua"
    clock.write_text("local now = 42\n", encoding="utf-8")
    text = scripts.load(name, clock=str(clock)).text
    assert "'TIME'" not in text
    true_clock = (LUA / "lib" / "clock.lua").read_text(encoding="utf-8").rstrip("\n")
    assert text == scripts.load(name).text.replace(true_clock, "local now = 42")


def test_the_package_comes_before_the_checkout(places: Path) -> None:
    """An installed package uses the scripts that it was built with; a checkout falls back on its own."""
    for place in ("first", "second"):
        (places / place / "x.lua").write_text(f'-- {place}\n-- include "lib/y.lua"\nend\n', encoding="utf-8")
        (places / place / "lib" / "y.lua").write_text(f"y of {place}\n\n", encoding="utf-8")
    assert scripts.load("x").text == "-- first\ny of first\nend\n"
    (places / "first" / "x.lua").unlink()
    assert scripts.load("x").text == "-- second\ny of second\nend\n"


def test_a_missing_script_names_the_places(places: Path) -> None:
    """And says what that means."""
    with pytest.raises(FileNotFoundError, match=r"no x\.lua in .*first or .*second: the installation is incomplete"):
        scripts.load("x")


def test_a_missing_include_is_an_error(places: Path) -> None:
    """Not a script that lacks a piece."""
    (places / "first" / "x.lua").write_text('-- include "lib/none.lua"\n', encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"none\.lua"):
        scripts.load("x")


def test_an_include_is_a_line_of_its_own(places: Path) -> None:
    """Text that mentions one is left alone."""
    text = 'local a = 1 -- include "lib/y.lua"\n  -- include "lib/y.lua"\n'
    (places / "first" / "x.lua").write_text(text, encoding="utf-8")
    assert scripts.load("x").text == text


def test_backslashes_in_a_piece_stay_as_they_are(places: Path) -> None:
    """What is included is no pattern."""
    (places / "first" / "x.lua").write_text('-- include "lib/y.lua"\n', encoding="utf-8")
    (places / "first" / "lib" / "y.lua").write_text(r"local a = '\0\1\g<0>'", encoding="utf-8")
    assert scripts.load("x").text == r"local a = '\0\1\g<0>'" + "\n"
