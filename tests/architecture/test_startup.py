"""A command imports what it needs and nothing else: that is most of its running time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agentsdir.cli.command_line import COMMANDS
from agentsdir.formats.version import VERSION

# Packages that cost more than a whole small command, and who may pay for them.
HEAVY = (
    "asyncio",
    "importlib.metadata",
    "jsonschema",
    "jsonschema_rs",
    "prompt_toolkit",
    "pydantic",
    "referencing",
    "rich",
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
    "rename": set(),
    "set": set(),
    "tag": set(),
    "resolve": set(),
    "outbox": set(),
    "restore": set(),
    "replay": set(),
    "parse": set(),
    "follow": set(),
    "inspect": set(),
    "list": set(),
    "fork": set(),
    "export": set(),
    # What it takes in is validated first.
    "import": {*VALIDATING, "importlib.metadata"},
    "archive": set(),
    "rm": set(),
    # rpds and attrs come with jsonschema and read their own versions.
    "validate": {*VALIDATING, "importlib.metadata"},
    "schema": set(),
    "adapters": {"importlib.metadata"},
    "trust": set(),
}

# What a plain `send` does without.
SLOW_FOR_ONE_TURN = {
    "dataclasses",
    "datetime",
    "hashlib",
    "importlib",
    "inspect",
    "json",
    "orjson",
    "subprocess",
    "tempfile",
    "tomllib",
    "typer",
    "typing",
    "urllib.parse",
    "uuid",
}
MOST_OF_OURS = 67
# What a plain `parse` does without.
SLOW_FOR_ONE_TRANSCRIPT = {
    "agentsdir.adapters.sides",
    "agentsdir.cli.command_line",
    "agentsdir.engine.native",
    "typer",
    "typing",
}

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
# Loads nothing itself.
BARE_PROBE = """
import os, sys
os._exit = sys.exit
before = set(sys.modules)
sys.argv[0] = "agentsdir"
from agentsdir.cli.main import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
sys.stderr.write(" ".join(set(sys.modules) - before))
"""
# Says whose finders of modules there are at the end.
FINDERS_PROBE = """
import os, sys
os._exit = sys.exit
sys.argv[0] = "agentsdir"
from agentsdir.cli.main import main
try:
    main()
except SystemExit:
    sys.stderr.write(" ".join(finder.__module__ for finder in sys.meta_path))
"""


def run(arguments: list[str], home: Path) -> tuple[int, str, set[str]]:
    """Run one command in a new process; return exit code, output and what it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=home,
        env={"HOME": str(home), "USER": "me"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report = json.loads(done.stderr.splitlines()[-1])
    return report["code"], done.stdout, set(report["modules"])


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
        "rename": ["rename", "active", "busy"],
        "set": ["set", "active", "cwd=."],
        "tag": ["tag", "active", "+urgent"],
        "resolve": ["resolve", "most-recent-foreground"],
        "outbox": ["outbox", "--deliver"],
        "restore": ["restore"],
        "replay": ["replay", "active"],
        "parse": ["parse", str(transcript)],
        "follow": ["follow", "session.jsonl", "--until-idle", "0"],
        "inspect": ["inspect", "active"],
        "list": ["list"],
        "fork": ["fork", "active"],
        "export": ["export", "active", "out"],
        "import": ["--root", "other", "import", "bundle.tar"],
        "archive": ["archive", "active"],
        "rm": ["rm", "--yes", "active"],
        "validate": ["validate"],
        "schema": ["schema"],
        "adapters": ["adapters"],
        "trust": ["trust"],
    }
    return Prepared(home, commands)


def modules_of(command: str, prepared: Prepared, home: Path) -> set[str]:
    """Run a command, which must succeed, in a copy of the prepared home; return its imports."""
    shutil.copytree(prepared.home, home, dirs_exist_ok=True)
    code, _, modules = run(prepared.commands[command], home)
    assert code == 0
    return modules


def heavy_ones(modules: set[str]) -> set[str]:
    """Return the heavy packages among imported modules."""
    return {name for name in HEAVY if name in modules}


def test_the_table_knows_every_command() -> None:
    """A new command must say here what it may import."""
    assert list(ALLOWED) == list(COMMANDS)


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_imports_nothing_heavy(command: str, prepared: Prepared, tmp_path: Path) -> None:
    """Each command succeeds and loads only the heavy packages it is allowed."""
    assert heavy_ones(modules_of(command, prepared, tmp_path)) <= ALLOWED[command]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_answered_without_the_command_line_library(
    flag: str, tmp_path: Path
) -> None:
    """`agentsdir --version` imports neither typer nor orjson, nor any other package."""
    code, output, modules = run([flag], tmp_path)

    packages = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert (code, output) == (0, f"agentsdir {VERSION}\n")
    assert packages == {"agentsdir"}


def test_a_command_has_its_modules_loaded_sooner(tmp_path: Path) -> None:
    """It asks for that before it imports them."""
    done = subprocess.run(
        [sys.executable, "-c", FINDERS_PROBE, "list"],
        cwd=tmp_path, env={"HOME": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert "agentsdir.cli.loading" in done.stderr.split()


def test_late_imports_are_seen_by_the_probe(tmp_path: Path) -> None:
    """The probe does see what a command imports late: `new` takes a lock."""
    _, _, modules = run(["new"], tmp_path)

    assert "agentsdir.formats.directory.locks" in modules
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
