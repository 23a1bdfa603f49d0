"""docs/library.md: each piece of Python is a program that prints what stands below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/library.md"
_FENCE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)

Done = subprocess.CompletedProcess[str]


class Program(NamedTuple):
    """A piece of Python, where it stands, and what it prints."""

    section: str
    number: int
    code: str
    output: str


TYPED = """
from typing import assert_type

from agentsdir import AgentConfig, App, AsyncApp, Execution

app = App(AgentConfig(provider="echo"))
session = app.session("one")
assert_type(session.send("x"), Execution)
assert_type(session.send.with_timeout(5).with_context(user="u")("x").result.response, str)
assert_type(session.queue("x"), str)
session.send(7)  # type: ignore[arg-type]
session.send("x", later=True)  # type: ignore[call-arg]
session.spawn("x")  # type: ignore[call-arg, arg-type]
App(AgentConfig(provider=7))  # type: ignore[arg-type]


async def wait() -> None:
    other = await AsyncApp(AgentConfig()).session("one")
    assert_type((await other.send("x").result).response, str)
    other.send(7)  # type: ignore[arg-type]
"""
"""What the types of the library say; an ignored error that is none is an error, too."""


def programs() -> list[Program]:
    """Return the pieces of Python of the page."""
    text = PAGE.read_text()
    return [
        Program(_SECTION.findall(text, 0, found.start())[-1], number, found[1], found[2] or "")
        for number, found in enumerate(_FENCE.finditer(text), 1)
    ]


PROGRAMS = programs()


def start(program: Program, folder: Path) -> Done:
    """Run a program in an empty home."""
    home = folder / str(program.number)
    home.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program.code],
        cwd=home,
        env={"HOME": str(home), "USER": "me", "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Future[Done]]:
    """Run all programs of the page, as many at once as there are processors."""
    folder = tmp_path_factory.mktemp("page")
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # it ends when they all have
        return [pool.submit(start, program, folder) for program in PROGRAMS]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: f"{one.number}-{one.section}")
def test_a_piece_of_the_page_prints_what_it_shows(
    program: Program, runs: list[Future[Done]]
) -> None:
    """Each by itself, as a program in an empty home, offline, and with no more on stderr."""
    done = runs[program.number - 1].result()
    assert (done.stdout, done.stderr) == (program.output, "")


def test_the_pieces_of_the_page_are_typed(tmp_path: Path) -> None:
    """A strict type checker finds nothing in them, nor in the programs of examples/."""
    for program in PROGRAMS:
        (tmp_path / f"piece_{program.number}.py").write_text(program.code)
    examples = [str(one) for one in (ROOT / "examples").glob("*.py") if one.stem != "read_agent"]
    (tmp_path / "typed.py").write_text(TYPED)
    pieces = map(str, sorted(tmp_path.glob("*.py")))
    cache = f"--cache-dir={tmp_path / 'cache'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", cache, *examples, *pieces],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / ".dev")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stdout + done.stderr


def test_each_example_stands_on_the_page() -> None:
    """A reader finds them all there, or beside what they are written from."""
    shown = set(re.findall(r"examples/(\w+)\.py", PAGE.read_text()))
    assert shown | {"read_agent"} == {path.stem for path in (ROOT / "examples").glob("*.py")}
