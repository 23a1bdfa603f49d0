"""Killed after any of its records, a command leaves what `restore` and the next sender mend."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from house import House, fail, say, shell
from oracle import faults_of, flaws

CUTS = Path(__file__).with_name("cuts.py")


def spawning(house: House) -> list[str]:
    """A turn spawns a child, which answers."""
    played = house.script("child", [say("done")])
    command = f"agentsdir spawn --name child --provider counted -o {played} work"
    parent = house.new("parent", "actor", [shell("spawn", command)], [say("heard")], [say("more")])
    return ["send", parent, "go"]


def failing(house: House) -> list[str]:
    """A turn spawns a child, which fails."""
    played = house.script("child", [fail()])
    command = f"agentsdir spawn --name child --provider counted -o {played} work"
    parent = house.new("parent", "actor", [shell("spawn", command)], [say("heard")], [say("more")])
    return ["send", parent, "go"]


def asking(house: House) -> list[str]:
    """A turn sends to another agent, and has the answer."""
    command = "agentsdir send --to helper --sync much"
    asker = house.new("asker", "actor", [shell("ask", command)], [say("thanks")], [say("more")])
    house.new("helper", "counted", [say("much")])
    return ["send", asker, "go"]


@pytest.mark.parametrize(
    ("scene", "late"), [(spawning, False), (failing, True), (asking, True)],
    ids=["a child answers", "a child fails", "another agent answers"],
)  # fmt: skip
@pytest.mark.feature("T-10")
def test_whatever_a_kill_leaves_is_mended(
    house: House, scene: Callable[[House], list[str]], late: bool
) -> None:
    """After each of its records in turn: each sender gets an answer or a notice, once.

    `restore` is run before another command, or only after it: then there are slots enough, as a
    command that needs one of a dead process mends what that left.
    """
    slots = 4 if late else 1
    house.settle(max_slots=slots)
    command = scene(house)
    (house.home / "store").mkdir()
    places = {}
    for place in (house.root, house.home / "store"):
        places[str(place)] = str(shutil.copytree(place, house.folder / f"first-{place.name}"))
    out = house.folder / "out"
    out.mkdir()
    job = {"places": places, "command": command, "late": late, "out": str(out)}
    done = subprocess.run(
        [sys.executable, str(CUTS), json.dumps(job)],
        env=house.environment, cwd=house.work, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for path in sorted(out.iterdir()):
        left = json.loads(path.read_bytes())
        wrong = [*faults_of(left["logs"], slots), *flaws(left["validate"])]
        if wrong:
            found[path.stem] = wrong
    assert found == {}
    assert len([*out.iterdir()]) > 15
