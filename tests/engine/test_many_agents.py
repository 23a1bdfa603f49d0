"""`restore` and `validate` with several processes do, and say, what they do with one."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_restoring import call, crash

from agentsdir.engine import restore, workers
from agentsdir.engine.restore import restore_all
from agentsdir.engine.validate.files import CheckCounts, validate_path

# pytest's own watchdog is a thread, which a fork does not take along.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture
def deals_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start processes for a few agents, too, and give each one at a time."""
    monkeypatch.setattr(restore, "_MANY", 2)
    monkeypatch.setattr(workers, "WORTH", 1)
    monkeypatch.setattr(workers, "LEAST", 1)


def furnish(stage: Any) -> list[str]:
    """Make agents of which one half is in order; return their ids in the order of restoring."""
    ids = []
    for number in range(12):
        paths = stage.new(name=f"agent {number}")
        ids.append(paths.id)
        if number % 3 == 0:
            crash(stage, paths, call(f"c{number}"))
        elif number % 3 == 1:
            stage.send(paths, "hello")
    parent = stage.new()
    child = stage.new(kind="subagent", parent=parent.id, name="reviewer")
    crash(stage, child)
    damaged = stage.new()
    log = damaged.log.read_bytes()
    damaged.log.write_bytes(log + b'{"seq": 2, no record\n')
    broken = stage.new()
    broken.session.write_bytes(b"{}")
    gone = stage.new()
    gone.log.unlink()
    gone.descriptor.unlink()
    stage.new()
    # What is done to the child changes what its parent needs.
    return [*ids, child.id, damaged.id, broken.id, gone.id, parent.id]


def copied(stage: Any, name: str) -> Any:
    """Return a stage whose root is a copy."""
    root = stage.root.with_name(name)
    shutil.copytree(stage.root, root)
    return replace(stage, root=root)


@pytest.mark.usefixtures("deals_few")
@pytest.mark.parametrize("dry_run", [False, True], ids=["restores", "only says"])
def test_agents_are_restored_alike_by_any_number_of_processes(stage: Any, *, dry_run: bool) -> None:
    """The same results in the same order, and the same bytes in every file."""
    ids = furnish(stage)
    shown, trees = [], []
    for jobs in (1, 3):
        scene = copied(stage, f"copy-{jobs}")
        layout = scene.services.layout
        agents = [layout.agent(one) for one in ids]
        results = list(restore_all(scene.services, agents, dry_run=dry_run, jobs=jobs))
        root = str(scene.root)
        shown.append([repr(one.as_json()).replace(root, "ROOT") for one in results])
        tree = scene.tree()
        trees.append({name: tree[name] for name in tree if not name.endswith("/stamps.json")})
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    assert shown[0] == shown[1]
    assert len([one for one in shown[0] if "'actions': []" in one]) > 5
    assert trees[0] == trees[1]


@pytest.mark.usefixtures("deals_few")
def test_an_agent_that_changes_after_it_was_read_is_read_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process has said of it is not believed then."""
    agents = [stage.new() for _ in range(4)]
    results = restore_all(stage.services, agents, jobs=2)
    assert next(results).actions == ()
    # All four were read, or are about to be.
    monkeypatch.setattr(restore, "_look_at", lambda *_args, **_named: (b"", ()))
    crash(stage, agents[3])
    assert [bool(one.actions) for one in results] == [False, False, True]


@pytest.mark.usefixtures("deals_few")
def test_what_was_said_of_an_agent_does_not_hold_once_another_agent_was_removed(stage: Any) -> None:
    """Its own log is as it was, but the log of a bundle may name any agent as a subagent."""
    ephemeral = stage.new(ephemeral=True)
    crash(stage, ephemeral)
    others = [stage.new() for _ in range(3)]
    running = {"child": ephemeral.id, "name": "reviewer", "status": "running"}
    stage.append(others[-1], "agent.spawned", running)
    actions = []
    for jobs in (1, 3):
        scene = copied(stage, f"copy-{jobs}")
        agents = [scene.services.layout.agent(one.id) for one in (ephemeral, *others)]
        actions.append([one.actions for one in restore_all(scene.services, agents, jobs=jobs)])
    assert [bool(some) for some in actions[0]] == [True, False, False, True]
    assert "is gone" in actions[0][-1][-1]
    assert actions[0] == actions[1]


@pytest.mark.usefixtures("deals_few")
def test_agents_are_validated_alike_by_any_number_of_processes(stage: Any) -> None:
    """The same findings in the same order, and the same counts; also for odd names."""
    furnish(stage)
    agents = stage.root / "agents"
    (agents / "no agent").mkdir()
    (agents / ".tmp-left").mkdir()
    odd = os.fsdecode(bytes(agents) + b"/x\xff\n")
    Path(odd).write_bytes(b"")
    shown = []
    for jobs in (1, 3):
        tally = CheckCounts()
        found = list(validate_path(stage.root, "root", tally, modes=True, jobs=jobs))
        shown.append((found, vars(tally)))
    assert shown[0] == shown[1]
    assert len(shown[0][0]) > 5
    assert shown[0][1]["agents"] == 18
