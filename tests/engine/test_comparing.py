"""Derived files beside the fold of the whole log: what `replay --check` finds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import resume, suspend
from agentsdir.engine.validate.derived import compare_derived
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, wrong_files
from agentsdir.formats.store.derived import MANIFEST, encode_document
from agentsdir.schemas import check

NAMES = ("descriptor.json", "session.json", "state.json", "history.jsonl", MANIFEST)
DOCUMENTS = ("descriptor.json", "session.json", "state.json", MANIFEST)

pytestmark = pytest.mark.feature("C-06", "S-04")


@pytest.fixture
def paths(stage: Any) -> Any:
    """Return an agent that has been through everything."""
    paths = stage.script("tools.jsonl")
    stage.send(paths, "one")
    suspend(stage.services, paths)
    resume(stage.services, paths)
    stage.send(paths, "two")
    return paths


def said(paths: Any) -> dict[str, tuple[str, str | None, str | None]]:
    """Return status, pointer and reason by file, for a sound log."""
    compared, findings = compare_derived(paths)
    assert findings == []
    assert all(check("derived", one.as_json()) == [] for one in compared)
    return {
        one.file: (one.outcome.status, one.outcome.pointer, one.outcome.reason) for one in compared
    }


def statuses(paths: Any) -> dict[str, str]:
    """Return the status by file, for a sound log."""
    return {file: status for file, (status, _, _) in said(paths).items()}


SAME = dict.fromkeys(NAMES, "same")


def edit(path: Path, change: Any) -> None:
    """Change a document, in the bytes of this format."""
    document = orjson.loads(path.read_bytes())
    change(document)
    path.write_bytes(encode_document(document))


def test_what_a_writer_left_is_the_same(paths: Any) -> None:
    """Every file, each in a line of its own."""
    assert statuses(paths) == SAME


def test_an_agent_that_has_not_spoken_needs_no_manifest(stage: Any) -> None:
    """A file that should not be there has no line."""
    assert set(statuses(stage.new())) == {*NAMES} - {MANIFEST}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_gone_is_missing(paths: Any, name: str) -> None:
    """The others are as they were."""
    (paths.folder / name).unlink()
    assert statuses(paths) == {**SAME, name: "missing"}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("damage", ["garbage", "empty", "link", "folder", "fifo"])
def test_what_cannot_be_read_is_unreadable(
    paths: Any, tmp_path: Path, name: str, damage: str
) -> None:
    """A link is not followed, and a FIFO is not waited for."""
    path = paths.folder / name
    kept = path.read_bytes()
    path.unlink()
    if damage == "link":
        (tmp_path / "elsewhere").write_bytes(kept)
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"" if damage == "empty" else b'{"cut": ')
    assert statuses(paths) == {**SAME, name: "unreadable"}


def test_a_folder_of_transcripts_that_is_a_link_is_not_entered(paths: Any, tmp_path: Path) -> None:
    """Though the manifest behind it is right."""
    paths.transcripts.rename(tmp_path / "moved")
    paths.transcripts.symlink_to(tmp_path / "moved")
    assert statuses(paths) == {**SAME, MANIFEST: "unreadable"}


@pytest.mark.parametrize(
    ("name", "change", "pointer", "reason"),
    [
        (
            "state.json",
            lambda d: d["counters"].update(turns=9),
            "/counters/turns",
            "holds 9, the log says 2",
        ),
        ("state.json", lambda d: d.pop("title"), "/title", "lacks what the log says"),
        ("state.json", lambda d: d.pop("logSize"), "/logSize", "lacks what the log says"),
        (
            "state.json",
            lambda d: d.update(logSize=d["logSize"] - 1),
            "/logSize",
            "no line of the log ends at byte",
        ),
        ("session.json", lambda d: d.update(model="x"), "/model", 'holds "x", the log says'),
        ("descriptor.json", lambda d: d.update(userId="eve"), "/userId", 'holds "eve"'),
        (MANIFEST, lambda d: d["files"][0].update(size=1), "/files/0/size", "holds 1, the log"),
        (MANIFEST, lambda d: d.update(files=[]), "/files", "holds 0 items, the log says 1"),
        ("session.json", lambda d: d.update(more=1), None, "the bytes are not"),
    ],
)
def test_what_was_changed_differs_and_the_first_difference_is_named(
    paths: Any, name: str, change: Any, pointer: str | None, reason: str
) -> None:
    """By a JSON pointer and what stands there; a value that is only written otherwise has none."""
    edit(paths.folder / name, change)
    found = said(paths)[name]
    assert found[:2] == ("differs", pointer)
    assert reason in str(found[2])
    assert statuses(paths) == {**SAME, name: "differs"}


def test_a_file_of_an_earlier_point_is_stale(stage: Any) -> None:
    """However early: none of them is wrong, and all that was ever written is one of them."""
    paths = stage.script("tools.jsonl")
    kept: dict[str, set[bytes]] = {name: set() for name in NAMES}

    def keep() -> None:
        for name in NAMES:
            if (paths.folder / name).exists():
                kept[name].add((paths.folder / name).read_bytes())

    keep()
    for _ in range(3):
        stage.send(paths, "go", on_event=lambda event: keep())
        keep()
        suspend(stage.services, paths)
        keep()
    for name, versions in kept.items():
        now = (paths.folder / name).read_bytes()
        for data in versions:
            (paths.folder / name).write_bytes(data)
            assert said(paths)[name][0] == ("same" if data == now else "stale"), (name, data)
        (paths.folder / name).write_bytes(now)
    assert {name: len(versions) > 2 for name, versions in kept.items()} == {
        name: name != "descriptor.json" for name in NAMES
    }


def test_a_beginning_of_history_is_stale_and_nothing_else_is(paths: Any) -> None:
    """Cut anywhere it is stale; with one byte changed in the part that is left, it differs."""
    whole = paths.history.read_bytes()
    ends = [n for n, byte in enumerate(whole) if byte == 0x0A]
    for size in {*range(0, len(whole), 61), *ends, *(n + 1 for n in ends[:-1])}:
        paths.history.write_bytes(whole[:size])
        assert said(paths)["history.jsonl"][0] == "stale", size
    for size in range(1, len(whole), 97):
        paths.history.write_bytes(whole[: size - 1] + b"\0")
        assert said(paths)["history.jsonl"][0] == "differs", size


@pytest.mark.parametrize(
    ("change", "pointer", "reason"),
    [
        (lambda lines: [*lines, lines[-1]], None, "nothing that this line could come from"),
        (lambda lines: [*lines, b'{"cut'], None, "nothing that this line could come from"),
        (lambda lines: [lines[0], *lines[2:]], "/type", "line 2, event 5: "),
        (lambda lines: [lines[0], b"#\n", *lines[2:]], None, "line 2, event 5: not JSON"),
        (
            lambda lines: [lines[0], lines[1].replace(b'":', b'": ', 1), *lines[2:]],
            None,
            "line 2, event 5: the values are those of the log",
        ),
    ],
)
def test_a_line_of_history_that_differs_is_named(
    paths: Any, change: Any, pointer: str | None, reason: str
) -> None:
    """With its number, and the event that it should have come from."""
    lines = paths.history.read_bytes().splitlines(keepends=True)
    paths.history.write_bytes(b"".join(change(lines)))
    status, place, why = said(paths)["history.jsonl"]
    assert status == "differs"
    assert reason in str(why)
    if pointer is None:
        assert place is None


def test_it_agrees_with_restore_about_what_is_not_right(stage: Any, paths: Any) -> None:
    """Whatever is not the same is rebuilt, nothing else is, and then all is the same."""
    stage.append(paths, "session.state", {"from": "active", "to": "suspended", "reason": "x"})
    originals = {name: (paths.folder / name).read_bytes() for name in NAMES}
    damages = (None, b"", b"{}", b"[1]\n", b"\xff\n")
    for number in range(len(damages) ** 2):
        for place, name in enumerate(NAMES):
            damage = damages[(number // (1 + 4 * (place % 2)) + place) % len(damages)]
            path = paths.folder / name
            path.write_bytes(originals[name] if damage is None else damage)
        wrong = wrong_files(paths, read_agent(paths, whole=True).state)
        found = statuses(paths)
        assert {name for name, status in found.items() if status != "same"} == set(wrong)
        assert restore_agent(stage.services, paths).error is None
        assert statuses(paths) == SAME


def test_damage_in_the_log_is_said_and_the_rest_is_compared(stage: Any, paths: Any) -> None:
    """As restore would make the files of what is left."""
    lines = paths.log.read_bytes().splitlines(keepends=True)
    hit = next(n for n, line in enumerate(lines) if b'"event":"block"' in line)
    lines[hit] = b"#\n"
    lines.append(b"#\n")
    paths.log.write_bytes(b"".join(lines))
    compared, findings = compare_derived(paths)
    assert findings[0].id == "bad-json"
    found = {one.file: one.outcome.status for one in compared}
    assert found["descriptor.json"] == found["session.json"] == found[MANIFEST] == "same"
    assert found["history.jsonl"] == "differs"
    restore_agent(stage.services, paths)
    assert {one.outcome.status for one in compare_derived(paths)[0]} == {"same"}


@pytest.mark.parametrize("data", [{}, {"block": None}, {"block": []}, {"block": {}}])
def test_a_record_without_its_parts_stops_nothing(
    stage: Any, paths: Any, data: dict[str, Any]
) -> None:
    """Another writer's mistake is damage of the log; the files are compared with the rest."""
    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.log import append_record

    state = stage.state(paths)
    append_record(paths.log, state.position, "block", data, stage.now(), state.session.id, Disk())
    compared, _ = compare_derived(paths)
    assert {one.outcome.status for one in compared} == {"same", "stale"}


def test_comparing_writes_nothing(stage: Any, paths: Any) -> None:
    """Nor does it make a lock file."""
    before = stage.tree()
    compare_derived(paths)
    assert stage.tree() == before


def test_a_manifest_that_a_living_writer_has_yet_to_make_is_not_missing(
    stage: Any, paths: Any
) -> None:
    """It follows the log, as everything derived does; when no process is at work, it is missing."""
    paths.manifest.unlink()
    with locks.hold(paths.turn, wait=0, what="the test"):
        assert statuses(paths) == {**SAME, MANIFEST: "stale"}
    assert statuses(paths) == {**SAME, MANIFEST: "missing"}
