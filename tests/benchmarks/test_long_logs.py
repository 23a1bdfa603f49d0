"""Commands on an agent with a long log, as ratios to floors that are measured in the same run.

What a command holds is measured as a difference: the peak with a long log, less that with a short.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.benchmark

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
LONG_LOG = Path(__file__).with_name("long_log.py")
LOADS = "import orjson, sys\nfor line in open(sys.argv[1], 'rb'):\n    orjson.loads(line)"
MEMORY_FILES = Path("/dev/shm")  # where a sync costs nothing
ROUNDS = 2
LONG_MEGABYTES = 24
SHORT_MEGABYTES = 1
BARS = {
    "replay": 6.5,
    "log": 8.0,
    "log -n 1": 5.0,
    "last": 6.0,
    "replay --events": 6.0,
    "export --bundle": 6.5,
    "import": 16.0,
    "inspect --saved": 7.0,
    "import of JSON": 24.0,
    "inspect --runtime": 8.0,  # it reads the log and the transcripts
    "fork and rm": 8.0,
    "suspend": 7.0,
}
# The spools of texts, of history and of blocks stay in memory up to 4, 4 and 16 MiB.
MORE_MIB = {
    "replay": 14,
    "log": 14,
    "log -n 1": 14,
    "last": 14,
    "replay --events": 4,
    "export --bundle": 14,
    "import": 6,
    "inspect --saved": 8,
    "import of JSON": 8,
    "inspect --runtime": 26,
    "fork and rm": 20,
    "suspend": 6,
}


class Agents(NamedTuple):
    """A root with an agent that has a long log, and one that has a short one."""

    root: Path
    long: str
    short: str


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    """Return agents on a memory file system, where there is one."""
    with tempfile.TemporaryDirectory(
        dir=MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else None
    ) as folder:
        root = Path(folder) / "root"
        ids = [
            subprocess.run(
                [sys.executable, str(LONG_LOG), str(root), str(megabytes)],
                check=True, capture_output=True, text=True, timeout=120,
            ).stdout.strip()
            for megabytes in (LONG_MEGABYTES, SHORT_MEGABYTES)
        ]  # fmt: skip
        yield Agents(root, *ids)


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment of a measured command."""
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_the_agents_that_are_measured_are_in_order(agents: Agents) -> None:
    """`validate` finds nothing wrong with what the generator made."""
    found = subprocess.run(
        [AGENTSDIR, "--root", str(agents.root), "validate"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (found.returncode, found.stdout) == (0, "")


def test_a_long_log_costs_little_more_than_decoding_it_and_is_not_held(
    bench: Any, agents: Agents
) -> None:
    """Each command reads it once, or not at all, whatever its length."""
    home = agents.root.parent
    log = agents.root / "agents" / agents.long / "events.jsonl"
    floor = [sys.executable, "-c", LOADS, str(log)]
    commands = _commands(agents.root, agents.long)
    short = {
        f"{name} (short)": command for name, command in _commands(agents.root, agents.short).items()
    }
    here: Any = {"cwd": home, "env": surroundings(home)}

    figures = bench.compare(floor, commands, BARS, rounds=ROUNDS, **here)
    held = bench.compare(floor, short, dict.fromkeys(short, 100.0), rounds=1, **here)

    assert {name: fig.ratio for name, fig in figures.items() if fig.ratio > BARS[name]} == {}
    more = {name: figures[name].peak - held[f"{name} (short)"].peak for name in BARS}
    assert {name: size for name, size in more.items() if size > MORE_MIB[name]} == {}


def _commands(root: Path, agent: str) -> dict[str, list[str]]:
    home = root.parent
    bundle, other = home / f"{agent}.tar", home / f"other-{agent}"
    on_root = [AGENTSDIR, "--root", str(root)]
    subprocess.run([*on_root, "export", "--bundle", agent, str(bundle)], check=True, timeout=60)
    document = home / f"{agent}.json"
    with document.open("wb") as stream:
        subprocess.run(
            [*on_root, "inspect", "--saved", agent], check=True, timeout=60, stdout=stream
        )
    return {
        "replay": [*on_root, "replay", agent],
        "log": [*on_root, "log", agent],
        "log -n 1": [*on_root, "log", "-n", "1", agent],
        "last": [*on_root, "last", agent],
        "replay --events": [*on_root, "replay", "--events", agent],
        "export --bundle": [*on_root, "export", "--bundle", agent, "-"],
        "import": _shell(f"rm -rf {other} && exec {AGENTSDIR} --root {other} import {bundle}"),
        "inspect --saved": [*on_root, "inspect", "--saved", agent],
        "import of JSON": _shell(
            f"rm -rf {other} && exec {AGENTSDIR} --root {other} import - <{document}"
        ),
        "inspect --runtime": [*on_root, "inspect", "--runtime", agent],
        "fork and rm": _shell(
            f'{AGENTSDIR} --root {root} rm --yes "$({AGENTSDIR} --root {root} fork {agent})"'
        ),
        "suspend": _shell(
            f"{AGENTSDIR} --root {root} resume {agent} && "
            f"exec {AGENTSDIR} --root {root} suspend {agent}"
        ),
    }


def _shell(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]
