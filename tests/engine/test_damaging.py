"""Each way to damage an agents directory that docs/operations.md lists is seen as it says there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine import settings
from agentsdir.engine.lookup import find_agent, make_index
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import AgentsdirError, Busy, Invalid
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.layout import AgentPaths, Layout

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()
SECTION = PAGE[PAGE.index("## How to damage") : PAGE.index("## Backups")]
ROWS = [row.split("|")[1].strip() for row in SECTION.splitlines() if row.startswith("| ")][1:]

Seen = set[str]
Way = Callable[[Any, AgentPaths], None]


def lines(paths: AgentPaths) -> list[bytes]:
    """Return the lines of a log."""
    return paths.log.read_bytes().splitlines(keepends=True)


def write(paths: AgentPaths, found: list[bytes]) -> None:
    """Put other lines in place of a log's."""
    paths.log.write_bytes(b"".join(found))


def edit(_: Any, paths: AgentPaths) -> None:
    """Change a word in the middle."""
    paths.log.write_bytes(paths.log.read_bytes().replace(b"hello", b"jello", 1))


def delete_lines(_: Any, paths: AgentPaths) -> None:
    """Take a line out."""
    write(paths, [line for at, line in enumerate(lines(paths)) if at != 3])


def cut(_: Any, paths: AgentPaths) -> None:
    """Take the end away."""
    write(paths, lines(paths)[:4])


def sort(_: Any, paths: AgentPaths) -> None:
    """Put the lines into another order."""
    first, *rest = lines(paths)
    write(paths, [first, *reversed(rest)])


def join(_: Any, paths: AgentPaths) -> None:
    """Append the log of another session."""
    other = paths.log.read_bytes().replace(b'"session_id":"0', b'"session_id":"1')
    paths.log.write_bytes(paths.log.read_bytes() + other)


def append(stage: Any, paths: AgentPaths) -> None:
    """Append what is nearly a record, and go on."""
    record = orjson.loads(lines(paths)[-1])
    with paths.log.open("ab") as stream:
        stream.write(b'{"hello":1}\n' + orjson.dumps({**record, "seq": 90}) + b"\n")
    stage.send(paths, "afterwards")


def delete_log(_: Any, paths: AgentPaths) -> None:
    """Remove the truth."""
    paths.log.unlink()


def edit_derived(_: Any, paths: AgentPaths) -> None:
    """Say something else in what is derived."""
    paths.descriptor.write_text('{"type":"heartbeat"}')
    text = paths.history.read_text()
    paths.history.write_text(text.replace("hello", "jello", 1))
    paths.session.unlink()


def swap_stamps(stage: Any, paths: AgentPaths) -> None:
    """Put the stamps of another agent in place, and what is no checkpoint, and go on."""
    other = stage.new()
    stage.send(other, "hello")
    shutil.copy(other.stamps, paths.stamps)
    shutil.copy(other.stamps, paths.checkpoint)
    assert stage.send(paths, "again").outcome == "completed"


def cut_index(stage: Any, paths: AgentPaths) -> None:
    """Take the agent out of the index, and look for it."""
    index = Layout(stage.root).index
    index.write_bytes(b"".join(line for line in index.read_bytes().splitlines(keepends=True)
                               if paths.id.encode() not in line))  # fmt: skip
    session = read_agent(paths).state.session.id
    assert find_agent(Layout(stage.root), session).id == paths.id


def log_of_another_name(stage: Any, paths: AgentPaths) -> None:
    """Put the log back from before a renaming, and look for the name that it has."""
    settings.rename(stage.services, paths, "before")
    before = paths.log.read_bytes()
    settings.rename(stage.services, paths, "after")
    layout = Layout(stage.root)
    layout.index.unlink()
    make_index(layout)
    paths.log.write_bytes(before)
    paths.state.unlink()
    found = {one.id for one in _problems(stage.root, modes=False) if one.file == str(layout.index)}
    assert found == {"derived-stale"}
    layout.index.unlink()
    assert find_agent(layout, "before").id == paths.id


def edit_transcript(stage: Any, paths: AgentPaths) -> None:
    """Change what the provider wrote; the next turn is not run."""
    (path,) = paths.transcripts.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello", 1))
    with pytest.raises(Invalid) as refused:
        stage.send(paths)
    assert refused.value.kind == "transcript-damaged"


def delete_lock(stage: Any, paths: AgentPaths) -> None:
    """Remove a lock that is held."""
    with write_agent(paths) as writer:
        paths.lock.unlink()
        with pytest.raises(Busy):
            writer.append("history.reset", {}, stage.now())


def rename(_: Any, paths: AgentPaths) -> None:
    """Call the folder something else."""
    paths.folder.rename(paths.folder.with_name("b" * 24))


def plant(_: Any, paths: AgentPaths) -> None:
    """Put a FIFO in place of the log."""
    paths.log.unlink()
    os.mkfifo(paths.log)


def old_state(stage: Any, paths: AgentPaths) -> None:
    """Put an older state.json back."""
    before = paths.state.read_bytes()
    stage.send(paths)
    paths.state.write_bytes(before)


def old_log(stage: Any, paths: AgentPaths) -> None:
    """Put an older log back."""
    before = paths.log.read_bytes()
    stage.send(paths)
    paths.log.write_bytes(before)


def widen(_: Any, paths: AgentPaths) -> None:
    """Let others read."""
    paths.log.chmod(0o644)


def two_hosts(_: Any, paths: AgentPaths) -> None:
    """Append a record that another host numbered for itself."""
    twice = lines(paths)
    write(paths, [*twice, twice[-1]])


DAMAGE: dict[str, tuple[Way, Seen]] = {
    "edit a line of `events.jsonl`": (edit, {"chain-break"}),
    "delete lines from its middle": (delete_lines, {"seq-gap", "chain-break"}),
    "cut it short": (cut, {"log-shorter"}),
    "sort, reformat, re-encode or pretty-print it": (sort, {"seq-gap", "chain-break"}),
    "join or copy logs together": (join, {"seq-gap", "chain-break", "session-id-differs"}),
    "append to it without the lock": (append, {"seq-gap", "chain-break", "not-a-record"}),
    "delete `events.jsonl`": (delete_log, {"no-log"}),
    "delete or edit `descriptor.json`, `session.json`, `state.json`, `history.jsonl`": (
        edit_derived,
        {"descriptor-differs", "missing", "derived-differs"},
    ),
    "delete or edit `stamps.json` or `checkpoint.json`, or copy it from elsewhere": (
        swap_stamps,
        set(),
    ),
    "delete, cut or edit `index.jsonl`, or copy an agent's folder beside it": (cut_index, set()),
    "put back a copy of a log that has another name": (log_of_another_name, set()),
    "edit or delete a file below `transcripts/`": (edit_transcript, {"transcript-differs"}),
    "delete `.lock` or `.turn` while a command runs": (delete_lock, set()),
    "rename an agent's folder": (rename, {"id-differs"}),
    "put a link, FIFO or device in place of a file, or give a log a second name": (
        plant,
        {"unsafe-path"},
    ),
    "restore state.json from an older backup than the log": (old_state, set()),
    "restore the log from an older backup than state.json": (old_log, {"log-shorter"}),
    "change modes or owners": (widen, {"wide-mode"}),
    "write to one root from two hosts": (two_hosts, {"seq-gap", "chain-break"}),
}


def test_every_way_that_the_spec_lists_is_tried() -> None:
    """And no other."""
    assert list(DAMAGE) == ROWS


@pytest.mark.parametrize("row", DAMAGE, ids=[re.sub(r"\W+", "-", row)[:30] for row in DAMAGE])
def test_damage_is_seen_as_the_spec_says_and_nothing_crashes(stage: Any, row: str) -> None:
    """`validate` names it; reading and restoring end in order, and the other agent is untouched."""
    paths, other = stage.new(), stage.new()
    stage.send(paths, "hello")
    stage.send(other, "hello")
    untouched = other.log.read_bytes()
    way, seen = DAMAGE[row]
    way(stage, paths)
    modes = row.startswith("change modes")
    assert seen <= {problem.id for problem in _problems(stage.root, modes=modes)}
    said = re.search(rf"^\| {re.escape(row)} \|([^|]*)\|", SECTION, re.MULTILINE)
    assert said is not None
    assert all({"no-log": "exit 12"}.get(one, one) in said[1] for one in seen)
    done = restore_agent(stage.services, paths)
    again = restore_agent(stage.services, paths)
    assert (done.error is None) == (again.error is None)
    assert again.actions == ()
    if paths.folder.exists() and done.error is None:
        stage_can_read(paths)
    assert stage.send(other, "still here").response == "still here"
    assert other.log.read_bytes().startswith(untouched)


def _problems(root: Path, *, modes: bool) -> list[Any]:
    from agentsdir.engine.validate.files import CheckCounts, validate_path

    return list(validate_path(root, str(root), CheckCounts(), modes=modes))


def stage_can_read(paths: AgentPaths) -> None:
    """Read an agent in both ways, which must agree."""
    assert read_agent(paths, whole=True).state == read_agent(paths).state


def test_a_backup_of_a_live_root_made_as_the_document_says_is_sound(
    stage: Any, tmp_path: Path
) -> None:
    """Taken again and again while a writer works: each copy is a moment of the past."""
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE[PAGE.index("## Backups") :], re.DOTALL)
    paths = stage.new()
    stage.send(paths, "hello")
    stop = threading.Event()
    failed: list[Exception] = []

    def write_on() -> None:
        try:
            while not stop.is_set():
                stage.send(paths, "x" * 5000)
        except AgentsdirError as error:
            failed.append(error)

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for number in range(8):
            folder = tmp_path / f"copy{number}"
            folder.mkdir()
            command = script.replace(" ROOT ", f" {stage.root} ")
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode in (0, 1), done.stderr  # 1: a file grew while it was read
            subprocess.run(["tar", "xf", "backup.tar"], cwd=folder, check=True)
    finally:
        stop.set()
        writer.join()
    assert failed == []
    for number in range(8):
        root = tmp_path / f"copy{number}"
        (root / "backup.tar").unlink()
        copy = Layout(root).agent(paths.id)
        whole = [line for line in lines(copy) if line.endswith(b"\n")]
        assert paths.log.read_bytes().startswith(b"".join(whole))
        services = stage.services._replace(layout=Layout(root))
        done = restore_agent(services, copy)
        assert done.error is None
        assert not done.lossy, done.findings
        assert [p.id for p in validate([root]) if p.is_damage and p.id != "torn-tail"] == []
    shutil.rmtree(stage.root)
