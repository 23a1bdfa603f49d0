"""Reading runs nothing: no module, hook or program out of data, and no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from arena import Arena, Mould

GUARD = Path(__file__).with_name("guarded_main.py")
FIXTURES = Path(__file__).parents[2] / "fixtures"
TRAP = """
import os, pathlib
pathlib.Path({marker!r}).touch()
os.write(2, b"TRAPPED " + __file__.encode() + b"\\n")
os._exit(96)
"""
MODULES = (
    "orjson.py", "typer.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "agentsdir.py",
    "agentsdir/__init__.py", "jsonschema_rs.py", "tomllib.py", "json.py", "readline.py",
    "plugin.py", "__init__.py", "__main__.py", "setup.py",
)  # fmt: skip
HOOKS = ("hooks/pre-send", "hooks/after-send", "hooks/on-restore", ".agentsdir/hooks/after-send")
# What would run something in programs that trust their folder.
FILES = {
    "agentsdir.pth": "import plugin\n",
    "pyproject.toml": "[project.entry-points.'agentsdir.adapters']\nevil = 'plugin:ARCHITECTURE'\n",
    "evil-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
    "evil-1.dist-info/entry_points.txt": "[agentsdir.adapters]\nevil = plugin:ARCHITECTURE\n",
    ".env": "PYTHONSTARTUP=plugin.py\n",
}


def plant(folder: Path, marker: Path) -> None:
    """Put a trap of every kind into a folder."""
    for name in MODULES:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(TRAP.format(marker=str(marker)))
    for name in HOOKS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
        path.chmod(0o755)
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def trapped(mould: Mould, tmp_path: Path) -> Arena:
    """Return a world with traps where data lies: in cwd, root, agents, transcripts."""
    arena = mould.copy(tmp_path)
    folder = arena.folder(mould.victim)
    for place in (arena.work, arena.root, folder, folder / "transcripts", arena.root / "agents"):
        plant(place, arena.outside / "ran")
    command = f"touch '{arena.outside / 'ran'}'"
    (arena.root / "settings.toml").write_text(
        f'[hooks]\nafter-send = "{command}"\n[providers.echo]\ncommand = "{command}"\n'
    )
    shutil.copy(FIXTURES / "claude" / "hello-2.1.98.jsonl", arena.work / "t.jsonl")
    return arena


def guarded(arena: Arena, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run one command in a new interpreter under the guard; return its exit code and stderr."""
    done = subprocess.run(
        # As the installed program runs: the working directory is no place to import from.
        [*prefix, sys.executable, "-P", str(GUARD), str(arena.base.resolve()), *arguments],
        env=arena.environment(),
        cwd=arena.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


VERBS: dict[str, list[str]] = {
    "list": ["list"],
    "inspect --runtime": ["inspect", "--runtime", "VICTIM"],
    "replay": ["replay", "VICTIM"],
    "validate": ["validate"],
    "validate a folder": ["validate", "."],
    "parse": ["parse", "--report=-", "t.jsonl"],
    "adapters": ["adapters"],
    "schema": ["schema", "block"],
    "restore": ["restore"],
    "send": ["send", "VICTIM", "hi"],
    "suspend": ["suspend", "VICTIM"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_that_lies_with_the_data_is_run(trapped: Arena, mould: Mould, verb: str) -> None:
    """No import, hook, program or socket; the built-in providers need none either."""
    words = [mould.victim if word == "VICTIM" else word for word in VERBS[verb]]
    code, said = guarded(trapped, *words)
    assert "FORBIDDEN" not in said
    assert "TRAPPED" not in said
    # Nothing in the working directory is of this format, which is said.
    assert code in ((12,) if verb == "validate a folder" else (0, 1)), said
    assert not (trapped.outside / "ran").exists()


def test_adapters_and_providers_are_none_of_the_folders(trapped: Arena) -> None:
    """Metadata that lies in cwd or root publishes no adapter."""
    code, said = guarded(trapped, "new", "--provider", "evil")
    assert (code, "FORBIDDEN" in said, "there is no adapter 'evil'" in said) == (2, False, True)
    assert not (trapped.outside / "ran").exists()


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import os; os.system('true')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.fork()",
        "import runpy; runpy.run_path('orjson.py')",
        "import sys; sys.path.insert(0, '.'); import plugin",
    ],
)
def test_the_guard_sees_what_it_forbids(trapped: Arena, code: str) -> None:
    """The tests above can fail: each of these ends the process."""
    source = GUARD.read_text(encoding="utf-8").split("from agentsdir.cli.main")[0] + code
    done = subprocess.run(
        [sys.executable, "-P", "-c", source, str(trapped.base.resolve())],
        cwd=trapped.work,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr.split()[0]) == (97, "FORBIDDEN")


def test_a_machine_without_network_is_enough(trapped: Arena, mould: Mould) -> None:
    """The schemas refer to each other by urls, and no command looks them up."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("only root may take the network away")
    for arguments in (["validate"], ["parse", "t.jsonl"], ["send", mould.victim, "hi"]):
        code, said = guarded(trapped, *arguments, prefix=(unshare, "-n"))
        assert code in (0, 1), said


def test_a_hostile_reference_in_a_document_is_not_followed(arena: Arena) -> None:
    """`$ref` and `$schema` in data are data."""
    (arena.work / "session.json").write_text(
        '{"$schema": "http://example.invalid/s", "$ref": "file:///etc/passwd", "id": "x"}'
    )
    code, said = guarded(arena, "validate", "session.json")
    assert code == 1
    assert "FORBIDDEN" not in said
