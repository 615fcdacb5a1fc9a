"""Wheel, wheel from the sdist, editable install and bare checkout all load the same scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support import REPOSITORY

GOLDEN_SHAS = REPOSITORY / "tests" / "lua" / "golden_shas.json"
SHAS_AS_JSON = """
import json
from aiolimit import scripts
print(json.dumps({name: scripts.load(name).sha for name in scripts.NAMES}))
"""
PLACE = "import aiolimit; print(aiolimit.__file__)"


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path) -> str:
    """Run a command and return what it printed; its errors go into the test's report."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Installation:
    """A fresh environment that holds the dependencies of this one, and not its aiolimit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        venv.create(directory, with_pip=False)
        # Only the folder is named, so this environment's own .pth files, an editable aiolimit among them, are not read.
        site = sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)})
        Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")

    def install(self, *what: str | Path) -> None:
        """Install without dependencies, without an index and with the build tools at hand."""
        offline = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
        pip = (sys.executable, "-m", "pip", "--python", str(self.python), "install", *offline)
        run(*pip, *what, env=self.env, cwd=self.directory)

    def run(self, code: str) -> str:
        """What a program prints there, started far from any checkout."""
        return run(self.python, "-c", code, env=self.env, cwd=self.directory).strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built straight from the checkout."""
    return build(tmp_path_factory.mktemp("wheel"), "--wheel")["whl"]


@pytest.fixture(scope="session")
def sdist_and_its_wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from that sdist."""
    built = build(tmp_path_factory.mktemp("sdist"))
    return built["gz"], built["whl"]


def build(directory: Path, *kind: str) -> dict[str, Path]:
    """Build into `directory`; what came out, by the end of its name."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, *kind, REPOSITORY, cwd=directory)
    return {path.name.rpartition(".")[2]: path for path in directory.iterdir()}


def golden_shas() -> dict[str, str]:
    """The SHA-1 of every script, as committed."""
    shas: dict[str, str] = json.loads(GOLDEN_SHAS.read_text(encoding="utf-8"))
    return shas


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name, without those that record the build."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_wheel_has_the_scripts_and_the_types_and_no_tests(wheel: Path) -> None:
    """The package, its `_lua` and `py.typed`, its metadata: nothing else."""
    names = contents(wheel).keys()
    assert {"aiolimit/__init__.py", "aiolimit/py.typed", "aiolimit/_lua/token_bucket.lua"} <= names
    tops = {re.sub(r"-[\d.]+\.dist-info$", ".dist-info", name.split("/")[0]) for name in names}
    assert tops == {"aiolimit", "aiolimit_redis.dist-info"}


def test_wheel_has_every_file_of_the_checkout(wheel: Path) -> None:
    """No module and no piece of a script is left behind."""
    expected = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "aiolimit").rglob("*.py")}
    lua = REPOSITORY / "lua"
    expected |= {f"aiolimit/_lua/{path.relative_to(lua)}" for path in lua.rglob("*.lua")}
    assert expected <= contents(wheel).keys()


def test_sdist_can_be_tested_and_documented(sdist_and_its_wheel: tuple[Path, Path]) -> None:
    """It has the sources of everything, and no caches."""
    with tarfile.open(sdist_and_its_wheel[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "docs/conf.py",
        "lua/token_bucket.lua",
        "pyproject.toml",
        "tests/conftest.py",
        "tests/support/clock_shim.c",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("docs/_build")]


def test_wheel_from_the_sdist_is_the_same(wheel: Path, sdist_and_its_wheel: tuple[Path, Path]) -> None:
    """File by file and byte by byte."""
    assert contents(sdist_and_its_wheel[1]) == contents(wheel)


def test_wheel_loads_its_scripts(wheel: Path, tmp_path: Path) -> None:
    """From the installed package, where no checkout is near."""
    installation = Installation(tmp_path / "venv")
    installation.install(wheel)
    assert installation.run(PLACE).startswith(str(installation.directory))
    assert json.loads(installation.run(SHAS_AS_JSON)) == golden_shas()


def test_editable_install_loads_the_checkouts_scripts(tmp_path: Path) -> None:
    """An editable install does not see forced files: `lua/` of the checkout is what it loads."""
    installation = Installation(tmp_path / "venv")
    installation.install("--editable", REPOSITORY)
    assert installation.run(PLACE) == str(REPOSITORY / "aiolimit" / "__init__.py")
    assert json.loads(installation.run(SHAS_AS_JSON)) == golden_shas()


def test_bare_checkout_loads_its_scripts(tmp_path: Path) -> None:
    """With nothing installed and the checkout on the path."""
    installation = Installation(tmp_path / "venv")
    installation.env["PYTHONPATH"] = str(REPOSITORY)
    assert json.loads(installation.run(SHAS_AS_JSON)) == golden_shas()


def test_command_is_installed(wheel: Path, tmp_path: Path) -> None:
    """`aiolimit --help` works from the wheel."""
    installation = Installation(tmp_path / "venv")
    installation.install(wheel)
    command = installation.directory / "bin" / "aiolimit"
    assert "simulate" in run(command, "--help", env=installation.env, cwd=tmp_path)
