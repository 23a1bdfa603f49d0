"""A command imports no other command, and none of the heavy libraries that it can do without."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from probing import probed

from agentsdir.cli.command_line import COMMANDS

# Packages that cost more than a whole small command, and who may pay for them.
HEAVY = (
    "asyncio",
    "importlib.metadata",
    "jsonschema",
    "jsonschema_rs",
    "multiprocessing",
    "prompt_toolkit",
    "pydantic",
    "referencing",
    "rich",
    "sqlite3",
)
VALIDATING = {"jsonschema", "jsonschema_rs", "referencing"}
ALLOWED: dict[str, set[str]] = {
    "new": set(),
    "send": set(),
    "queue": set(),
    "spawn": set(),
    "interrupt": set(),
    "clear-abort": set(),
    "close": set(),
    "reset": set(),
    "suspend": set(),
    "resume": set(),
    "permissions": set(),
    "rename": set(),
    "set": set(),
    "tag": set(),
    "resolve": set(),
    "snapshot": set(),
    "outbox": set(),
    "restore": set(),
    "replay": set(),
    "parse": set(),
    "follow": set(),
    "inspect": set(),
    "list": set(),
    "log": set(),
    "last": set(),
    "wait": set(),
    "open": set(),
    "fork": set(),
    "export": set(),
    # What it takes in is validated first.
    "import": {*VALIDATING, "importlib.metadata"},
    "archive": set(),
    "rm": set(),
    # rpds and attrs come with jsonschema and read their own versions.
    "validate": {*VALIDATING, "importlib.metadata"},
    "chat": set(),
    "schema": set(),
    "adapters": {"importlib.metadata"},
    "config": set(),
    "trust": set(),
}

REFUSED = {"open": 2}
"""Commands that need what the tests have not, such as a terminal, and their exit codes."""
FIXTURE = Path(__file__).parents[2] / "fixtures" / "claude" / "hello-2.1.98.jsonl"
PROBE = """
import json, os, sys
os._exit = sys.exit  # the probe has to outlive the command
before = set(sys.modules)
sys.argv[0] = "agentsdir"
from agentsdir.cli.main import main
try:
    main()
except SystemExit as done:
    code = done.code or 0
new = sorted(set(sys.modules) - before)
sys.stderr.write("\\n" + json.dumps({"code": code, "modules": new}))
"""


def run(arguments: list[str], home: Path) -> tuple[int, str, set[str]]:
    """Run one command in a new process; return exit code, output and what it imported."""
    output, report = probed(PROBE, arguments, home)
    return report["code"], output, set(report["modules"])


class Prepared(NamedTuple):
    """A home with two agents in it, and a real little invocation of every command there."""

    home: Path
    commands: dict[str, list[str]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Prepare what every command needs: an active agent, a suspended one, a transcript."""
    home = tmp_path_factory.mktemp("prepared")
    for name in ("active", "asleep"):
        run(["new", "--name", name], home)
        run(["send", name, "hello"], home)
    run(["suspend", "asleep"], home)
    run(["export", "--bundle", "asleep", "bundle.tar"], home)
    shutil.copy(FIXTURE, home / "session.jsonl")
    transcript = next(home.glob(".agentsdir/agents/*/transcripts/*.jsonl")).relative_to(home)
    commands = {
        "new": ["new"],
        "send": ["send", "active", "again"],
        "queue": ["queue", "active", "later"],
        "spawn": ["spawn", "task", "--parent", "active"],
        "interrupt": ["interrupt", "active", "later"],
        "clear-abort": ["clear-abort", "active"],
        "close": ["close", "active"],
        "reset": ["reset", "active"],
        "suspend": ["suspend", "active"],
        "resume": ["resume", "asleep"],
        "permissions": ["permissions"],
        "rename": ["rename", "active", "busy"],
        "set": ["set", "active", "cwd=."],
        "tag": ["tag", "active", "+urgent"],
        "resolve": ["resolve", "most-recent-foreground"],
        "snapshot": ["snapshot", "active"],
        "outbox": ["outbox", "--deliver"],
        "restore": ["restore"],
        "replay": ["replay", "active"],
        "parse": ["parse", str(transcript)],
        "follow": ["follow", "session.jsonl", "--until-idle", "0"],
        "inspect": ["inspect", "active"],
        "list": ["list"],
        "log": ["log", "active"],
        "last": ["last", "active"],
        "wait": ["wait", "active"],
        "open": ["open", "active"],
        "fork": ["fork", "active"],
        "export": ["export", "active", "out"],
        "import": ["--root", "other", "import", "bundle.tar"],
        "archive": ["archive", "active"],
        "rm": ["rm", "--yes", "active"],
        "validate": ["validate"],
        "chat": ["chat", "--jsonl"],
        "schema": ["schema"],
        "adapters": ["adapters"],
        "config": ["config"],
        "trust": ["trust"],
    }
    return Prepared(home, commands)


def modules_of(command: str, prepared: Prepared, home: Path) -> set[str]:
    """Run a command in a copy of the prepared home; return its imports."""
    shutil.copytree(prepared.home, home, dirs_exist_ok=True)
    code, _, modules = run(prepared.commands[command], home)
    assert code == REFUSED.get(command, 0)
    return modules


def heavy_ones(modules: set[str]) -> set[str]:
    """Return the heavy packages among imported modules."""
    return {name for name in HEAVY if name in modules}


def test_the_table_knows_every_command() -> None:
    """A new command must say here what it may import."""
    assert ALLOWED.keys() == COMMANDS.keys()


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_imports_nothing_heavy(command: str, prepared: Prepared, tmp_path: Path) -> None:
    """Each command succeeds and loads only the heavy packages it is allowed."""
    assert heavy_ones(modules_of(command, prepared, tmp_path)) <= ALLOWED[command]


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_an_option_of_the_program_imports_no_command(option: str, tmp_path: Path) -> None:
    """The table of commands has their one-line descriptions, so that none of them is loaded."""
    code, output, modules = run([option], tmp_path)

    assert (code, bool(output)) == (0, True)
    assert heavy_ones(modules) == set()
    assert {name for name in modules if name.startswith("agentsdir.cli.commands.")} == set()


def test_late_imports_are_seen_by_the_probe(tmp_path: Path) -> None:
    """The probe does see what a command imports late: `new` takes a lock."""
    _, _, modules = run(["new"], tmp_path)

    assert "agentsdir.formats.store.locks" in modules
    assert heavy_ones({"os", "rich"}) == {"rich"}


def test_a_command_imports_no_other_command(prepared: Prepared, tmp_path: Path) -> None:
    """Only the command that was asked for is loaded."""
    modules = modules_of("list", prepared, tmp_path)

    loaded = {name for name in modules if name.startswith("agentsdir.cli.commands.")}
    assert loaded == {"agentsdir.cli.commands.list"}


def test_the_checkout_is_never_imported_under_a_second_name(
    prepared: Prepared, tmp_path: Path
) -> None:
    """`cli`, `formats` and the others exist only as parts of `agentsdir`."""
    modules = modules_of("send", prepared, tmp_path)

    assert modules & {"adapters", "cli", "engine", "formats", "schemas"} == set()
