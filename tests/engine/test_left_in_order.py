"""`restore` passes over agents that were left in order, and over no others (SPEC.md, "Stamps")."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_many_agents import copied, furnish
from test_restoring import crash

from agentsdir.engine.restore import restore_all
from agentsdir.engine.slots import suspend
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.engine.validate.files import validate
from agentsdir.formats.store import stamps
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths


def opened_logs(
    stage: Any, monkeypatch: pytest.MonkeyPatch, *agents: AgentPaths, full: bool = False
) -> tuple[list[str], list[dict[str, Any]]]:
    """Restore agents; return whose logs were opened, and the results."""
    opened = []
    real_open = os.open

    def watched(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("events.jsonl"):
            opened.append(Path(path).parent.name)
        return real_open(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", watched)
        found = [one.as_json() for one in restore_all(stage.services, [*agents], full=full)]
    return opened, found


def test_the_log_of_an_agent_that_was_left_in_order_is_not_opened(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported as one that was read."""
    paths = stage.new()
    stage.send(paths, "hello")
    list(restore_all(stage.services, [paths]))
    list(restore_all(stage.services, [paths]))

    opened, short = opened_logs(stage, monkeypatch, paths)
    read, long = opened_logs(stage, monkeypatch, paths, full=True)

    assert (opened, read) == ([], [paths.id])
    assert short == long == [{**short[0], "actions": [], "findings": [], "error": None}]


def test_what_is_open_is_read(stage: Any) -> None:
    """Whatever there is to do is done, as if all were read."""
    ids = furnish(stage)
    shown, trees = [], []
    for full in (False, True):
        scene = copied(stage, f"copy-{full}")
        layout = scene.services.layout
        agents = [layout.agent(one) for one in ids]
        rounds = [list(restore_all(scene.services, agents, full=full)) for _ in range(3)]
        root = str(scene.root)
        shown.append([repr(one.as_json()).replace(root, "R") for part in rounds for one in part])
        left = {name: data for name, data in scene.tree().items() if "stamps.json" not in name}
        trees.append(left)
    assert shown[0] == shown[1]
    assert trees[0] == trees[1]


def test_a_leftover_and_a_holder_are_seen(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither touches a file that has a stamp."""
    paths = stage.new()
    (paths.folder / ".tmp-x").write_text("left")
    assert opened_logs(stage, monkeypatch, paths)[1][0]["actions"] == ["removed .tmp-x"]
    with hold_turn(paths):
        (held,) = restore_all(stage.services, [paths], full=False)
        assert held.actions == ("left alone: a living process holds it",)
    turn = stage.new()
    crash(stage, turn)
    assert "suspended" in opened_logs(stage, monkeypatch, turn)[1][0]["actions"]


def test_an_open_turn_of_a_session_that_is_not_active_is_read(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No writer of ours leaves one; the log of another program may have it."""
    paths = stage.new()
    stage.send(paths, "hello")
    suspend(stage.services, paths)
    opening = {"turn_id": "t" * 24, "message_ids": [], "provider": "echo", "attempt": 1}
    with write_agent(paths) as writer:
        writer.append("turn.start", opening, stage.now())
        writer.replace("state.json", None)
        writer.leave_stamp()
    assert stamps.is_untouched(paths)

    opened, (found,) = opened_logs(stage, monkeypatch, paths)

    assert opened != []
    assert found["actions"] != []


def test_damage_is_reported_until_it_is_mended_also_after_later_commands(stage: Any) -> None:
    """They read the end of the log only, and so cannot say that the agent is in order."""
    paths = stage.new()
    for text in ("one", "two"):
        stage.send(paths, text)
    list(restore_all(stage.services, [paths]))
    data = paths.log.read_bytes()
    paths.log.write_bytes(data.replace(b'"one"', b'"ona"', 1))
    for _ in range(2):
        (found,) = restore_all(stage.services, [paths], full=False)
        assert found.lossy
        stage.send(paths, "three")
        suspend(stage.services, paths)


def damage_history(paths: AgentPaths) -> None:
    """Change a letter of history.jsonl."""
    data = paths.history.read_bytes()
    paths.history.write_bytes(data.replace(b"one", b"ona", 1))


def test_what_a_stamp_can_miss_is_found_by_a_full_restore_and_by_validate(stage: Any) -> None:
    """Other bytes in a file that looks as it did; here the stamp is made to fit them."""
    paths = stage.new()
    stage.send(paths, "one")
    list(restore_all(stage.services, [paths]))
    damage_history(paths)
    state = stage.state(paths)
    stamps.leave(paths, state.position.size, state.history_size)

    (passed,) = restore_all(stage.services, [paths], full=False)
    assert passed.actions == ()
    assert [one.id for one in validate([paths.folder])] == ["derived-differs"]
    (mended,) = restore_all(stage.services, [paths], full=True)
    assert mended.actions == ("rebuilt history.jsonl",)


def half(path: Path) -> None:
    """Cut a file short."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


SPOILED: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "half written": half,
    "hostile": lambda path: path.write_bytes(b'{"left":{"events.jsonl":[1,2,3,4]}}\n'),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_stamp_that_is_no_good_costs_a_reading_and_nothing_else(
    stage: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The agent is read, and is what it was."""
    paths = stage.new()
    stage.send(paths, "one")
    list(restore_all(stage.services, [paths]))
    list(restore_all(stage.services, [paths]))
    before = {name: data for name, data in stage.tree().items() if "stamps.json" not in name}
    SPOILED[how](paths.stamps)

    opened, (found,) = opened_logs(stage, monkeypatch, paths)

    assert opened[0] == paths.id
    assert (found["actions"], found["findings"], found["error"]) == ([], [], None)
    if paths.stamps.is_dir():
        paths.stamps.rmdir()
    after = {name: data for name, data in stage.tree().items() if "stamps.json" not in name}
    assert before == after


def test_a_copied_folder_is_read(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stamps speak of other files."""
    paths = stage.new()
    stage.append(paths, "agent.tagged", {"tags": ["x"]})
    shutil.move(paths.folder, paths.folder.with_name("away"))
    shutil.copytree(paths.folder.with_name("away"), paths.folder)
    assert opened_logs(stage, monkeypatch, paths)[0][0] == paths.id
    assert opened_logs(stage, monkeypatch, paths)[0] == []


def test_a_dry_run_leaves_no_stamp(stage: Any) -> None:
    """It writes nothing."""
    paths = stage.new()
    stage.append(paths, "agent.tagged", {"tags": ["x"]})
    paths.stamps.unlink()
    list(restore_all(stage.services, [paths], dry_run=True))
    assert not paths.stamps.exists()
    list(restore_all(stage.services, [paths]))
    assert stamps.is_untouched(paths)
