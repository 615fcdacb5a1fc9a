"""The reader of the documentation's examples finds each of them, where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import Block, blocks, command

PAGE = """\
# Title

```python
x = 1
```

<!-- command: tests -->
```bash
run
more
```

````text
```python
quoted
```
````
"""


def test_blocks_are_found_with_their_lines_and_commands() -> None:
    """A block inside a longer fence is text."""
    assert blocks(PAGE) == [
        Block("python", "x = 1\n", 4, None),
        Block("bash", "run\nmore\n", 9, "tests"),
        Block("text", "```python\nquoted\n```\n", 14, None),
    ]


def test_command_is_the_marked_block(tmp_path: Path) -> None:
    """What continuous integration runs is the text of the page."""
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert command(page, "tests") == "run\nmore\n"


@pytest.mark.parametrize("text", ["", PAGE + PAGE])
def test_command_that_is_not_there_exactly_once_is_an_error(tmp_path: Path, text: str) -> None:
    """A page that lost its marker must not pass as a page with nothing to run."""
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(LookupError, match="command: tests"):
        command(page, "tests")
