"""What the tests stand on: real servers, a clock to step, a wire to cut, and the assembled scripts."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
