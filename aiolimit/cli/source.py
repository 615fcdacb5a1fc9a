"""Opening a log: a file or standard input, plain or gzip, as numbered lines of bytes."""

from __future__ import annotations

import contextlib
import gzip
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from .exits import CommandError, ExitCode

if TYPE_CHECKING:
    import io
    from collections.abc import Generator, Iterator
    from types import TracebackType

MAX_LINE = 1 << 20
"""The longest line that is kept, in bytes. What is beyond is left out, and the line is one byte too long to pass."""

_GZIP = b"\x1f\x8b"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstdcat", b"BZh": "bzcat", b"\xfd7zXZ": "xzcat", b"PK\x03\x04": "unzip -p"}
_STDIN = "-"


class Source:
    """An open log. ``size`` is that of the file in bytes, 0 when unknown.

    Raises:
        CommandError: When it cannot be opened or read, with what would be right.
    """

    def __init__(self, name: str) -> None:
        self.name = "standard input" if name == _STDIN else name
        self.size = 0
        self._owned = name != _STDIN
        with self._named_errors():
            self._raw = self._open(name)
        try:
            self._lines = self._unpacked()
        except CommandError:
            self._close()
            raise

    def _unpacked(self) -> BinaryIO:
        with self._named_errors():
            magic = self._raw.peek(8)[:8]
        if magic.startswith(_GZIP):
            return cast("BinaryIO", gzip.GzipFile(fileobj=self._raw))
        for start, tool in _OTHERS.items():
            if magic.startswith(start):
                raise self._error(f"is compressed, and not with gzip: pipe it in, {tool} ... | aiolimit simulate -")
        return self._raw

    def _open(self, name: str) -> io.BufferedReader:
        if not self._owned:
            return cast("io.BufferedReader", sys.stdin.buffer)
        path = Path(name)
        if path.is_dir():
            raise IsADirectoryError(0, "is a directory; give one log file, or pipe several into '-'")
        self.size = path.stat().st_size
        return path.open("rb")

    def _close(self) -> None:
        if self._owned:
            self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def __iter__(self) -> Iterator[bytes]:
        """The lines, with their ends; a line over `MAX_LINE` is cut to one byte more than that."""
        with self._named_errors():
            while line := self._lines.readline(MAX_LINE + 1):
                rest = line
                while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
                    rest = self._lines.readline(MAX_LINE + 1)
                yield line

    def position(self) -> int:
        """How many bytes of the file have been read."""
        return self._raw.tell() if self.size else 0

    @contextlib.contextmanager
    def _named_errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:  # gzip.BadGzipFile is one
            raise self._error(_reason(error)) from error
        except EOFError as error:
            raise self._error("ends in the middle of its gzip stream; it is cut off, or still being written") from error
        except zlib.error as error:
            raise self._error(f"is a broken gzip file ({error})") from error

    def _error(self, what: str) -> CommandError:
        return CommandError(ExitCode.UNREADABLE, f"ACCESS_LOG {self.name!r}: {what}")


def _reason(error: OSError) -> str:
    if isinstance(error, gzip.BadGzipFile):
        return f"is a broken gzip file ({error})"
    if isinstance(error, FileNotFoundError):
        return "there is no such file; give the path of a log, or '-' for standard input"
    return error.strerror or str(error)
