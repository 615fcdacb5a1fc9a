"""``python -m benchmarks [question ...]``: measure, print tables, and keep them as JSON if asked."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .facts import load_average, machine_facts
from .report import as_json, as_text
from .runner import Bench, SkippedError
from .server import CLIENT_CORE, SERVER_CORE, can_pin

if TYPE_CHECKING:
    from .runner import Question

QUESTIONS = (
    "one_caller",
    "callers_50",
    "callers_1000",
    "hand_batch_500",
    "server_ceiling",
    "memory",
    "server_cpu",
    "bytes_per_key",
    "longest_command",
)


def main() -> int:
    """Run the command line. Gives 1 when nothing could be measured; a wrong answer ends it with its traceback."""
    options = _options()
    bench = Bench(options.server, options.quick, options.repeats or (3 if options.quick else 7), options.peers)
    bench.pin = can_pin()
    facts = machine_facts()
    if bench.pin:
        os.sched_setaffinity(0, {CLIENT_CORE})
        facts["pinned"] = f"client on core {CLIENT_CORE}, server on core {SERVER_CORE}"
    else:
        facts["pinned"] = "nothing: there is no core for each"
    with bench.server() as server:
        facts["server"] = server.version
    facts["repeats"] = f"{bench.repeats}{', quick' if bench.quick else ''}"
    print("\n".join(f"- {name}: {fact}" for name, fact in facts.items()), flush=True)

    results: list[dict[str, Any]] = []
    for name in options.question or QUESTIONS:
        results += _answer(name, bench)
    facts["load after"] = load_average()
    if options.json:
        options.json.write_text(json.dumps({"facts": facts, "tables": results}, indent=1) + "\n", encoding="utf-8")
    return 0 if results else 1


def _answer(name: str, bench: Bench) -> list[dict[str, Any]]:
    question = cast("Question", importlib.import_module(f".questions.{name}", __package__))
    started = time.monotonic()
    print(f"\n## {name}", flush=True)
    found = []
    try:
        for table in question.run(bench):
            print(f"\n{as_text(table)}", flush=True)
            found.append(as_json(name, table))
    except SkippedError as reason:
        print(f"\nSKIPPED: {reason}", flush=True)
    print(f"({time.monotonic() - started:.0f} s)", flush=True)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure aiolimit beside what it replaces.")
    parser.add_argument("question", nargs="*", help=f"all unless given: {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="less of everything: two minutes, and noisier numbers")
    parser.add_argument("--repeats", type=int, help="how often each case is measured (7, or 3 with --quick)")
    parser.add_argument("--peers", action="store_true", help="measure limits and throttled-py, too")
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there")
    options = parser.parse_args()
    unknown = [name for name in options.question if name not in QUESTIONS]
    if unknown:
        parser.error(f"no question {', '.join(unknown)}: there are {', '.join(QUESTIONS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
