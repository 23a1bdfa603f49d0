"""Modules stay small, and nothing below `cli` reaches for the world by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from agentsdir.adapters import registry

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
BELOW_CLI = ("adapters", "engine", "formats", "schemas")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
MAX_LINES = 1300

# What only `cli` may call, and touch; a name stands for everything below it too.
BUILT_INS = ("print", "input", "breakpoint")
WORLD = (
    "sys.stdin",
    "sys.stdout",
    "sys.stderr",
    "sys.argv",
    "sys.exit",
    "os.environ",
    "os.environb",
    "os.getenv",
    "os.getcwd",
    "os.getlogin",
    "os.getuid",
    "os.path.expanduser",
    "os.path.expandvars",
    "pathlib.Path.home",
    "pathlib.Path.cwd",
    "time.time",
    "time.time_ns",
    "time.sleep",
    "time.localtime",
    "time.gmtime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "getpass.getuser",
    "random",
    "secrets",
    "uuid.uuid1",
    "uuid.uuid4",
)
WORLD_METHODS = ("expanduser",)

# module → what it may use, and why.
ALLOWED: dict[str, dict[str, str]] = {
    "formats/signals.py": {"time.sleep": "waits for a lock, as a lock does"},
}

ARCHITECTURES = {"claude", "claude-agent-sdk", "gemini", "gemini-cli", "script", "echo"}


def name_of(path: Path) -> str:
    """Return a module's path as it is written in this file."""
    return path.relative_to(ROOT).as_posix()


def uses_of_the_world(source: str) -> set[str]:
    """Return what of `WORLD` a module uses, however it imported it."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                aliases[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    used.update(name for name in aliases.values() if _is_world(name))
    for node in ast.walk(tree):
        dotted = _dotted(node, aliases)
        if dotted and _is_world(dotted):
            used.add(dotted)
        if isinstance(node, ast.Attribute) and node.attr in WORLD_METHODS:
            used.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in BUILT_INS:
            used.add(ast.unparse(node.func))
    return used


def _is_world(name: str) -> bool:
    return any(name == known or name.startswith(known + ".") for known in WORLD)


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([aliases.get(node.id, node.id), *parts])


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    """No module passes 1,300 lines: a concept is as long as it is, up to there."""
    assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("package", BELOW_CLI)
def test_nothing_below_cli_touches_the_world(package: str) -> None:
    """Only `cli` prints, and reads the environment, the home directory and the clock."""
    offenders = {
        name_of(path): found
        for path in sorted((ROOT / package).rglob("*.py"))
        if (found := uses_of_the_world(path.read_text()) - set(ALLOWED.get(name_of(path), {})))
    }

    assert offenders == {}


def test_every_exception_to_the_rule_is_needed() -> None:
    """The allow-list names only what modules really use."""
    stale = {
        (name, use)
        for name, uses in ALLOWED.items()
        for use in set(uses) - uses_of_the_world((ROOT / name).read_text())
    }

    assert stale == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print('x')", {"print"}),
        ("import os\nos.environ['A']", {"os.environ"}),
        ("from os import environ as e\ne.get('A')", {"os.environ", "os.environ.get"}),
        ("from pathlib import Path\nPath.home()", {"pathlib.Path.home"}),
        ("import datetime as d\nd.datetime.now()", {"datetime.datetime.now"}),
        ("def f():\n    import time\n    return time.time()", {"time.time"}),
        ("path.expanduser()", {"expanduser"}),
        ("import random", {"random"}),
        ("def f(world):\n    return world.now()", set()),
    ],
)
def test_the_search_sees_through_aliases(source: str, expected: set[str]) -> None:
    """The rule above would notice each way of breaking it."""
    assert uses_of_the_world(source) == expected


def test_a_class_has_a_name_of_its_own() -> None:
    """A search for a class finds one; a private name counts too."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def architectures_in(source: str) -> set[str]:
    """Return the architectures that a module has as texts of its own, to compare or to look up."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text in ARCHITECTURES}


@pytest.mark.feature("B-07")
def test_an_architecture_is_an_adapter_and_no_condition_elsewhere() -> None:
    """No module outside an adapter can ask which architecture it is dealing with.

    It has none of their names, but for the list of those that are built in.
    """
    adapters = [ROOT / "adapters" / name for name in ("claude", "gemini", "script.py", "echo.py")]
    found = {
        name_of(path): names
        for path in MODULES
        if not any(path.is_relative_to(adapter) for adapter in adapters)
        if (names := architectures_in(path.read_text()))
    }

    assert found == {"adapters/registry.py": {"claude", "gemini", "script", "echo"}}
    assert architectures_in("how = {'claude': 1}.get(name)") == {"claude"}


def test_the_clients_are_the_built_in_architectures_that_run_a_program() -> None:
    """The registry lists them, so that `new` need not import them to know."""
    running = [a.name for a in registry.built_in() if a.provider and a.provider.runs_program]
    assert list(registry.CLIENTS) == running
