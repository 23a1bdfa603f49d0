"""Removing and archiving, as the disk sees it: what is durable before what."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine.close import archive_agent, remove_agent, unarchive_agent
from agentsdir.engine.restore import sweep_root
from agentsdir.formats.errors import Busy, NoSuchAgent, NotRecorded, Uncertain
from agentsdir.formats.store import locks
from agentsdir.formats.store.files import Disk


def name_of(descriptor: int) -> str:
    """Return the last part of the path that is open there."""
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is fsynced and renamed among folders from now on, in order."""
    found: list[str] = []
    fsync, rename, rmdir = os.fsync, os.rename, os.rmdir

    def noting_fsync(descriptor: int) -> None:
        found.append(f"fsync {name_of(descriptor)}")
        fsync(descriptor)

    def noting_rename(old: Any, new: Any) -> None:
        found.append(f"to {Path(new).parent.name}")
        rename(old, new)

    def noting_rmdir(path: Any, **options: Any) -> None:
        found.append("rmdir")
        rmdir(path, **options)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    monkeypatch.setattr(os, "rmdir", noting_rmdir)
    return found


def test_a_removal_is_durable_before_anything_is_deleted(stage: Any, steps: list[str]) -> None:
    """Rename, fsync of agents/, then the bytes."""
    paths = stage.new()
    steps.clear()

    remove_agent(stage.services, paths)

    assert steps == ["to agents", "fsync agents", "rmdir"]


CONFIRMED = ["fsync events.jsonl", "to archive", "fsync archive", "fsync agents"]


@pytest.mark.parametrize(
    ("durability", "wanted"),
    [("always", CONFIRMED), ("batch", CONFIRMED), ("never", ["to archive"])],
)
def test_a_suspension_is_durable_before_the_agent_moves(
    stage: Any, steps: list[str], durability: str, wanted: list[str]
) -> None:
    """Under each durability what it promises, and both folders after the rename."""
    paths = stage.new()
    stage.send(paths)
    (stage.root / "archive").mkdir(0o700)
    steps.clear()

    archive_agent(stage.services._replace(disk=Disk(durability)), paths)

    assert [step for step in steps if step in CONFIRMED] == wanted


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Let each fsync of what is called `name` fail; return what was asked for."""
    asked: list[str] = []
    fsync = os.fsync

    def refusing(descriptor: int) -> None:
        asked.append(name_of(descriptor))
        if asked[-1] == name:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    return asked


def test_a_removal_that_is_not_confirmed_deletes_nothing_and_is_not_tried_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes wait for `restore`; the next agent is not touched at all."""
    first, second = stage.new(), stage.new()
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}
    services = stage.services
    asked = refuse(monkeypatch, "agents")

    for paths in (first, second):
        with pytest.raises(Uncertain):
            remove_agent(services, paths)

    assert asked == ["agents"]
    (rest,) = (path for path in services.layout.agents.iterdir() if path.name.startswith(".tmp-"))
    assert before.items() <= {path.name: path.read_bytes() for path in rest.iterdir()}.items()
    assert second.folder.is_dir()
    monkeypatch.undo()
    assert sweep_root(stage.services) == [rest]


def test_an_archiving_that_is_not_confirmed_is_said_and_not_tried_again(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stands in one of both places, whole."""
    first, second = stage.new(), stage.new()
    services = stage.services
    asked = refuse(monkeypatch, "archive")

    for paths in (first, second):
        with pytest.raises(Uncertain):
            archive_agent(services, paths)

    assert asked.count("archive") == 1
    assert (services.layout.archive / first.id / "events.jsonl").exists()
    assert second.folder.is_dir()


@pytest.mark.parametrize("act", [remove_agent, archive_agent])
def test_a_rename_that_is_refused_changes_nothing(
    stage: Any, monkeypatch: pytest.MonkeyPatch, act: Any
) -> None:
    """The agent is there, and goes on."""
    paths = stage.new()

    def refusing(old: Any, new: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refusing)
        with pytest.raises(NotRecorded):
            act(stage.services, paths)

    assert stage.send(paths, "still here").response == "still here"


@pytest.fixture
def layered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse each rename of an agent's folder as overlayfs does; return what is removed."""
    removed: list[str] = []
    rename, unlink = os.rename, os.unlink

    def refusing(old: Any, new: Any) -> None:
        if len(Path(old).name) == 24 and Path(old).is_dir():
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    def noting(path: Any, **options: Any) -> None:
        removed.append(Path(os.fsdecode(path)).name)
        unlink(path, **options)

    monkeypatch.setattr(os, "rename", refusing)
    monkeypatch.setattr(os, "unlink", noting)
    return removed


def test_where_no_folder_is_renamed_the_log_is_removed_after_all_but_the_locks(
    stage: Any, layered: list[str]
) -> None:
    """A process that dies in between leaves an agent that can be removed again."""
    paths = stage.new()
    stage.send(paths)
    layered.clear()

    remove_agent(stage.services, paths)

    order = [name for name in layered if not name.startswith(".tmp-")]
    assert order[-3] == "events.jsonl"
    assert set(order[-2:]) == {".lock", ".turn"}
    assert not paths.folder.exists()


def test_an_agent_that_is_half_removed_can_be_removed(
    stage: Any, layered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its log is gone it is there."""
    paths = stage.new()
    stage.send(paths)
    unlink = os.unlink

    def refusing(path: Any, **options: Any) -> None:
        if Path(os.fsdecode(path)).name == "events.jsonl":
            raise OSError(errno.EACCES, "Permission denied")
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing)
        with pytest.raises(NotRecorded):
            remove_agent(stage.services, paths)
    assert "events.jsonl" not in layered
    assert stage.state(paths).counters["turns"] == 1

    remove_agent(stage.services, paths)

    assert not paths.folder.exists()


def test_where_no_folder_is_renamed_an_archived_agent_is_a_copy_that_appears_whole(
    stage: Any, layered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the old one is removed before; refused, nothing is left of the copy."""
    paths = stage.new()
    stage.send(paths)
    archive = stage.root / "archive"
    archive.mkdir(0o700)
    rename = os.rename

    def refusing(old: Any, new: Any) -> None:
        if Path(new).parent == archive:
            code = errno.EXDEV if Path(old) == paths.folder else errno.ENOSPC
            raise OSError(code, os.strerror(code))
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refusing)
        with pytest.raises(NotRecorded, match="No space"):
            archive_agent(stage.services, paths)
    assert list(archive.iterdir()) == []
    assert "events.jsonl" not in layered or stage.state(paths)
    before = {path.name: path.read_bytes() for path in paths.folder.iterdir() if path.is_file()}

    archive_agent(stage.services, paths)

    after = {
        path.name: path.read_bytes() for path in (archive / paths.id).iterdir() if path.is_file()
    }
    assert after == before
    assert not paths.folder.exists()


def test_what_cannot_be_deleted_is_left_to_restore(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is gone, the command says that bytes of it are not."""
    paths = stage.new()

    def refusing(path: Any, **options: Any) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refusing)
        with pytest.raises(NotRecorded, match="is gone, but not all of its files") as raised:
            remove_agent(stage.services, paths)

    assert raised.value.kind == "half-removed"
    assert "restore" in (raised.value.hint or "")
    assert not paths.folder.exists()
    assert len(sweep_root(stage.services)) == 1


@pytest.mark.parametrize("act", [remove_agent, archive_agent, unarchive_agent])
def test_an_agent_that_went_meanwhile_is_no_such_agent(stage: Any, act: Any) -> None:
    """Between being named and being locked."""
    paths = stage.new()
    remove_agent(stage.services, paths)

    with pytest.raises(NoSuchAgent):
        act(stage.services, paths)
    assert not paths.folder.exists()


@pytest.mark.parametrize("act", [remove_agent, archive_agent])
def test_a_running_turn_keeps_its_agent(stage: Any, act: Any) -> None:
    """Nothing is waited for."""
    paths = stage.new()
    before = stage.tree()

    with locks.hold(paths.turn), pytest.raises(Busy):
        act(stage.services, paths)

    assert {path for path in stage.tree() if not path.endswith(".lock")} == {
        *(path for path in before if not path.endswith(".lock")),
        f"agents/{paths.id}/.turn",
    }
