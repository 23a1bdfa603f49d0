"""A process under the shim that has imported everything, and forks a child for each command.

It reads requests as lines of JSON on stdin and answers each with one line; fault_rig.py starts it.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import fault_patches
from fault_rules import Case, judge, picture
from fault_runs import PATIENCE, Runner, tree_of
from fault_shim import CONTROL, Control, Fault, Flag, Mode
from fault_verbs import CONTROLS, VERBS

from agentsdir.cli.command_line import COMMANDS


def main() -> None:
    """Serve until stdin ends."""
    folder = Path(sys.argv[1])
    runner = Runner(Control(Path(os.environ[CONTROL])), folder)
    _warm_up(runner, folder)
    gc.set_threshold(100_000)
    gc.freeze()
    pictures: dict[str, Any] = {}
    for line in sys.stdin:
        signal.alarm(PATIENCE)
        answer = _serve(json.loads(line), runner, folder, pictures)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _warm_up(runner: Runner, folder: Path) -> None:
    """Import what commands import when they run, in this process, so that no child has to."""
    for name in COMMANDS:
        import_module(f"agentsdir.cli.commands.{name.replace('-', '_')}")
    root = folder / "warm"
    for number, verb in enumerate(VERBS.values()):
        verb.prepare(runner, root / str(number))
        runner.sound(root / str(number), [verb.arguments, ["validate"], ["list"]])
    shutil.rmtree(root)


def _serve(
    request: dict[str, Any], runner: Runner, folder: Path, pictures: dict[str, Any]
) -> dict[str, Any]:
    verb = {**VERBS, **CONTROLS}[request["verb"]]
    template = Path(request["template"])
    if request["prepare"]:
        template.parent.mkdir(parents=True)
        verb.prepare(runner, template)
    if request["verb"] not in pictures:
        pictures[request["verb"]] = picture(runner, template)
    before, told = pictures[request["verb"]]
    mode, at, error, flags = request["fault"]
    fault = Fault(Mode(mode), at, error, Flag(flags))
    work = folder / "case"
    shutil.rmtree(work, ignore_errors=True)
    root = work / "root"
    if template.exists():
        shutil.copytree(template, root)
    patch = getattr(fault_patches, request["patch"] or "nothing")
    done, calls = runner.faulty(root, verb.arguments, fault, patch)
    case = Case(verb, fault, root, before, told, done, calls, tree_of(root), request["logged"])
    broken = judge(case, runner)
    return {"broken": broken, "calls": [[*call] for call in calls], "done": str(done)}


if __name__ == "__main__":
    main()
