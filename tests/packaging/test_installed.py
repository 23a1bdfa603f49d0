"""The wheel works where nothing but its own dependencies is installed."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from agentsdir.cli.command_line import COMMANDS
from agentsdir.formats.version import VERSION

NAME = "agentsdir"


def runtime_dependencies() -> set[str]:
    """Return the names of all distributions that an installed agentsdir needs, itself excepted."""
    needed: set[str] = set()
    queue = [NAME]
    while queue:
        for line in metadata.requires(queue.pop()) or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in needed:
                needed.add(requirement.name)
                queue.append(requirement.name)
    return needed


def link_dependencies(site: Path) -> None:
    """Put links to the dependencies that are installed here into another site-packages."""
    for name in runtime_dependencies():
        distribution = metadata.distribution(name)
        for top in {path.parts[0] for path in distribution.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(distribution.locate_file(top)))


@pytest.fixture(scope="session")
def installation(built: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a new virtual environment, offline; return its `bin`."""
    folder = tmp_path_factory.mktemp("installation") / "venv"
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link_dependencies(folder / "lib" / version / "site-packages")
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    done = subprocess.run(
        [*install, "--no-deps", "--no-index", "--no-compile", "--quiet", str(built.wheel)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def run(*command: str | Path, cwd: Path, says: str = "") -> str:
    """Run a program far from the checkout and return its output; it must succeed.

    On stderr it must say what begins with `says`, or nothing.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"HOME": str(cwd), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr[: len(says) or None]) == (0, says)
    return done.stdout


def test_no_development_tool_is_there(installation: Path, tmp_path: Path) -> None:
    """The environment of the tests below has no pytest to lean on, and is not the checkout's."""
    code = (
        "import importlib.util as u, agentsdir.cli as c;"
        "print([n for n in ('pytest', 'mypy', 'cli', 'formats') if u.find_spec(n)]);"
        "print(c.__file__)"
    )
    found, where = run(installation / "python", "-c", code, cwd=tmp_path).splitlines()

    assert found == "[]"
    assert Path(where).is_relative_to(installation.parent)


@pytest.mark.parametrize("program", [["agentsdir"], ["python", "-m", "agentsdir.cli.main"]])
def test_both_ways_in_work(program: list[str], installation: Path, tmp_path: Path) -> None:
    """The script and the module both start, and say which version they are."""
    output = run(installation / program[0], *program[1:], "--version", cwd=tmp_path)

    assert output == f"agentsdir {VERSION}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_starts(command: str, installation: Path, tmp_path: Path) -> None:
    """No command needs a module that was left out of the wheel, or a development tool."""
    assert run(installation / "agentsdir", command, "--help", cwd=tmp_path)


@pytest.mark.feature("C-11")
def test_a_session_runs(installation: Path, tmp_path: Path) -> None:
    """A script can make an agent, talk to it and take it through its life."""
    program = installation / "agentsdir"
    agent = run(program, "new", "--provider", "echo", cwd=tmp_path).strip()

    assert run(program, "send", agent, "hello", cwd=tmp_path) == "hello\n"
    assert run(program, "suspend", agent, cwd=tmp_path) == ""
    assert run(program, "resume", agent, cwd=tmp_path) == ""
    assert run(program, "replay", agent, cwd=tmp_path) == "> hello\n\nhello\n\n"


def test_schemas_are_found_in_the_installation(installation: Path, tmp_path: Path) -> None:
    """`schema` and `validate` read package data, which only an installation can be short of."""
    program = installation / "agentsdir"
    run(program, "new", "--provider", "echo", cwd=tmp_path)

    assert run(program, "schema", cwd=tmp_path)
    run(program, "validate", cwd=tmp_path, says="agentsdir: checked")


@pytest.mark.feature("A-01", "A-08")
def test_a_program_uses_the_library(installation: Path, tmp_path: Path) -> None:
    """With a tool, a runner and a store, so that each part of it is in the wheel."""
    example = Path(__file__).parents[2] / "examples/repl_runner.py"
    for code, answer in (("x = 6", "done\n"), ("x * 7", "42\n")):
        assert run(installation / "python", "-W", "error", example, code, cwd=tmp_path) == answer
