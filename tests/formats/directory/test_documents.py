"""Whole files: old or new, private, and no leftovers; and what a full disk does."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk, make_folder, replace_file, write_new


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def names(folder: Path) -> list[str]:
    """Return what stands in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.feature("S-02")
@pytest.mark.parametrize("durable", [False, True])
def test_a_replaced_file_is_the_new_one_and_nothing_is_left_over(
    tmp_path: Path, durable: bool
) -> None:
    """Old bytes, then new bytes, and one name in the folder."""
    path = tmp_path / "doc.json"
    for data in (b"old", b"new and longer", b""):
        replace_file(path, data, Disk() if durable else None)
        assert path.read_bytes() == data
        assert names(tmp_path) == ["doc.json"]


@pytest.mark.feature("S-02")
def test_a_file_open_before_it_is_replaced_still_holds_the_old_bytes(tmp_path: Path) -> None:
    """A reader never sees a mixture: the new file is another file."""
    path = tmp_path / "doc.json"
    replace_file(path, b"old", Disk())
    with path.open("rb") as reader:
        replace_file(path, b"new", Disk())
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


LIMITED = """
    import resource, signal, sys
    from pathlib import Path
    from agentsdir.formats.store.files import replace_file
    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.errors import NotRecorded
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        replace_file(Path(sys.argv[1]), b"n" * 1000, Disk())
    except NotRecorded as error:
        print(error)
"""


@pytest.mark.feature("S-02")
def test_a_document_that_does_not_fit_leaves_the_old_one_and_no_temporary_file(
    tmp_path: Path,
) -> None:
    """The write is cut short by the system; nothing has changed."""
    path = tmp_path / "doc.json"
    path.write_bytes(b"old")
    done = run(LIMITED, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cannot write" in done.stdout
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["doc.json"]


def test_a_folder_in_place_of_a_document_is_not_recorded(tmp_path: Path) -> None:
    """And no temporary file is left."""
    (tmp_path / "doc.json").mkdir()
    with pytest.raises(NotRecorded):
        replace_file(tmp_path / "doc.json", b"x", None)
    assert names(tmp_path) == ["doc.json"]


@pytest.mark.parametrize("inside", ["missing/doc.json", "file/doc.json"])
def test_a_document_in_no_folder_is_not_recorded(tmp_path: Path, inside: str) -> None:
    """A folder that is missing, or a file in its place, is a refusal and not a crash."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotRecorded):
        replace_file(tmp_path / inside, b"x", Disk())
    assert names(tmp_path) == ["file"]


def test_a_link_at_the_documents_name_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """What it pointed to keeps its bytes."""
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "doc.json").symlink_to(tmp_path / "target")
    replace_file(tmp_path / "doc.json", b"new", Disk())
    assert (tmp_path / "target").read_bytes() == b"target"
    assert not (tmp_path / "doc.json").is_symlink()


def test_a_new_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    """Nor of a link, dangling or not."""
    (tmp_path / "there").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            write_new(tmp_path / name, b"y", None)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_made_is_not_recorded(tmp_path: Path) -> None:
    """A file stands in its way."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotRecorded):
        make_folder(tmp_path / "file" / "a" / "b", Disk())


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_everything_is_private_from_its_creation_whatever_the_umask(
    agents: Any, umask: int
) -> None:
    """Folders 0700, files 0600: those that were made, replaced, appended to and locked."""
    before = os.umask(umask)
    try:
        paths = agents.publish()
        agents.talk(paths)
    finally:
        os.umask(before)
    modes = {
        path.relative_to(agents.layout.root): stat.S_IMODE(path.lstat().st_mode)
        for path in agents.layout.root.rglob("*")
    }
    assert {mode for path, mode in modes.items() if (agents.layout.root / path).is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if (agents.layout.root / path).is_file()} == {
        0o600
    }
    assert stat.S_IMODE(agents.layout.root.stat().st_mode) == 0o700
    assert len(modes) >= 7


APPEND = """
    import json, resource, signal, sys
    from pathlib import Path
    from agentsdir.formats.store.agent import write_agent
    from agentsdir.formats.store.layout import Layout
    from agentsdir.formats.errors import NotRecorded
    paths = Layout(Path(sys.argv[1])).agent(sys.argv[2])
    room = int(sys.argv[3])
    with write_agent(paths) as writer:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = paths.log.stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            writer.append("history.reset", {"message": "m" * 400}, "2026-01-02T03:04:05.000000Z")
        except NotRecorded as error:
            print(error)
"""


def contents(paths: Any) -> dict[Path, bytes]:
    """Return each file of an agent but its stamps, which have the times of the log."""
    return {
        path: path.read_bytes()
        for path in paths.folder.rglob("*")
        if path.is_file() and path != paths.stamps
    }


@pytest.mark.parametrize("room", [0, 1, 200])
def test_an_append_that_does_not_fit_leaves_the_log_as_it_was(agents: Any, room: int) -> None:
    """Refused at once or cut short, the log is the same to the byte; later it works."""
    paths = agents.publish()
    agents.talk(paths)
    files = contents(paths)
    done = run(APPEND, agents.layout.root, agents.id, room)
    assert (done.returncode, done.stderr) == (0, "")
    assert "cannot append" in done.stdout
    assert contents(paths) == files
    agents.append(paths, "history.reset", {})
    assert read_agent(paths, whole=True).findings == ()


def test_an_event_is_recorded_also_when_no_derived_file_can_be_written(agents: Any) -> None:
    """It is durable, so the writer must not say otherwise; the next one catches up."""
    paths = agents.publish()
    agents.talk(paths)
    state, history = paths.state.read_bytes(), paths.history.read_bytes()
    paths.state.unlink()
    paths.state.mkdir()
    record = agents.append(paths, "history.reset", {"message": "x"})
    assert read_agent(paths, whole=True).state.position.last_seq == record.seq
    paths.state.rmdir()
    paths.state.write_bytes(state)
    agents.append(paths, "history.reset", {"message": "y"})
    assert paths.state.read_bytes() != state
    assert paths.history.read_bytes().startswith(history)
    assert b'"message":"x"' in paths.history.read_bytes()
    assert b'"message":"y"' in paths.history.read_bytes()


FULL_HISTORY = """
    import resource, signal, sys
    from pathlib import Path
    from agentsdir.formats.store.agent import write_agent
    from agentsdir.formats.store.layout import Layout
    paths = Layout(Path(sys.argv[1])).agent(sys.argv[2])
    with write_agent(paths) as writer:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = paths.log.stat().st_size + 2000
        with paths.history.open("ab") as stream:
            stream.truncate(limit - 10)
        writer.state.history_size = limit - 10
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        record = writer.append("history.reset", {"message": "m"}, "2026-01-02T03:04:05.000000Z")
        print(record.seq)
"""


def test_an_event_is_recorded_also_when_the_history_has_no_room_for_it(agents: Any) -> None:
    """The history is rebuilt from the log instead."""
    paths = agents.publish()
    done = run(FULL_HISTORY, agents.layout.root, agents.id)
    assert (done.stdout, done.stderr) == ("2\n", "")
    assert paths.history.read_bytes().count(b"\n") == 2


def test_an_agent_that_cannot_be_made_leaves_nothing(agents: Any) -> None:
    """No folder, no temporary folder, and the error of the disk."""
    agents.publish()
    full = """
        import json, resource, signal, sys
        from pathlib import Path
        from agentsdir.formats.store.layout import Layout
        from agentsdir.formats.store.agent import create_agent_folder
        from agentsdir.formats.errors import NotRecorded
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
        try:
            create_agent_folder(
                Layout(Path(sys.argv[1])), "b" * 24, json.loads(sys.argv[2]), "t", "0" * 32
            )
        except NotRecorded as error:
            print("refused")
    """
    for limit in (10, 900):
        done = run(full, agents.layout.root, json.dumps(agents.created("b" * 24)), limit)
        assert (done.stdout, done.stderr) == ("refused\n", ""), limit
        assert names(agents.layout.agents) == [agents.id]


def test_an_agent_is_never_made_over_another(agents: Any) -> None:
    """The folder that is there wins, untouched."""
    paths = agents.publish()
    before = paths.log.read_bytes()
    with pytest.raises(NotRecorded):
        agents.publish()
    assert paths.log.read_bytes() == before
    assert names(agents.layout.agents) == [agents.id]


def test_data_that_would_not_come_back_makes_no_agent(agents: Any) -> None:
    """Refused, and no temporary folder stays."""
    with pytest.raises(Invalid):
        agents.publish(cwd="\udcff")
    assert names(agents.layout.agents) == []
