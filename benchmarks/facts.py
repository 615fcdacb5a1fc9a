"""What a number depends on, besides the code."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("redis", "hiredis", "uvloop", "limits", "throttled-py")


def machine_facts() -> dict[str, str]:
    """The machine and the versions, by name."""
    facts = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "kernel": f"{platform.system()} {platform.release()}",
        "load before": load_average(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "commit": _commit(),
    }
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def load_average() -> str:
    """How busy the machine has been in the last 1, 5 and 15 minutes, the benchmark itself included."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _commit() -> str:
    """The commit that is measured, marked when the package or the scripts differ from it."""
    root = Path(__file__).parent.parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "aiolimit", "lua")
        return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
