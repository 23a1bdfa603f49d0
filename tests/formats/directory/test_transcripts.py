"""Raw transcripts, kept byte for byte."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath
from agentsdir.formats.source import Source
from agentsdir.formats.store import transcripts
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths


@pytest.fixture
def paths(tmp_path: Path) -> AgentPaths:
    """Return an agent's folder."""
    folder = tmp_path / ("a" * 24)
    folder.mkdir()
    return AgentPaths(folder, "a" * 24)


@pytest.mark.parametrize("native", ["a.jsonl", "projects/-w/a.jsonl", "chats/session-é.json"])
def test_a_transcript_is_stored_under_its_native_path(paths: AgentPaths, native: str) -> None:
    """With its size and hash, and can be loaded again."""
    data = b"\xff\0raw\r\n"
    synced = transcripts.store(paths, native, "main", Source("t", data=data), None, Disk())
    assert synced is not None
    assert synced.as_entry() == {
        "path": native,
        "role": "main",
        "size": len(data),
        "sha256": sha256(data).hexdigest(),
    }
    assert (paths.transcripts / native).read_bytes() == data
    assert transcripts.load(paths, [native, "missing.jsonl"]) == {native: data}


def test_only_the_new_tail_is_written(paths: AgentPaths) -> None:
    """What is stored already is compared and left; storing it again does nothing."""
    transcripts.store(paths, "a", "main", Source("t", data=b"one\n"), None, Disk())
    stored = paths.transcripts / "a"
    inode = stored.stat().st_ino
    assert (
        transcripts.store(paths, "a", "main", Source("t", data=b"one\ntwo\n"), None, Disk())
        is not None
    )
    assert (stored.stat().st_ino, stored.read_bytes()) == (inode, b"one\ntwo\n")
    modified = stored.stat().st_mtime_ns
    known = {"size": 8, "sha256": sha256(b"one\ntwo\n").hexdigest()}
    again = Source("t", data=b"one\ntwo\n")
    assert transcripts.store(paths, "a", "main", again, known, Disk()) is None
    assert stored.stat().st_mtime_ns == modified


def test_a_transcript_that_becomes_another_part_of_its_session_is_named_again(agents: Any) -> None:
    """As a document does whose client goes on in a log beside it; its bytes are the same."""
    source = Source("t", data=b"one\n")
    with write_agent(agents.publish()) as writer:
        first = writer.store("a", "main", source)
        assert first is not None
        writer.append("transcript.synced", {"files": [first.as_entry()]}, agents.now())
        assert writer.store("a", "main", source) is None
        again = writer.store("a", "sidecar", source)
        assert again is not None
        assert again.as_entry() == {**first.as_entry(), "role": "sidecar"}
        writer.append("transcript.synced", {"files": [again.as_entry()]}, agents.now())
        assert writer.store("a", "sidecar", source) is None


@pytest.mark.parametrize("native", [b"", b"on", b"One\nmore\n", b"two\n"])
def test_a_native_file_that_is_shorter_or_differs_overwrites_nothing(
    paths: AgentPaths, native: bytes
) -> None:
    """It is an error of its own kind."""
    transcripts.store(paths, "a", "main", Source("t", data=b"one\n"), None, Disk())
    with pytest.raises(Invalid) as refused:
        transcripts.store(paths, "a", "main", Source("t", data=native), None, Disk())
    assert refused.value.kind == "transcript-differs"
    assert (paths.transcripts / "a").read_bytes() == b"one\n"


def test_an_empty_transcript_is_stored_once(paths: AgentPaths) -> None:
    """It exists, and is then known."""
    assert transcripts.store(paths, "a", "main", Source("t", data=b""), None, Disk()) is not None
    assert (paths.transcripts / "a").read_bytes() == b""
    known = {"size": 0, "sha256": sha256(b"").hexdigest()}
    assert transcripts.store(paths, "a", "main", Source("t", data=b""), known, Disk()) is None


HOSTILE = json.loads((Path(__file__).parents[1] / "hostile_ids.json").read_text(encoding="utf-8"))
UNSAFE = [
    *("", ".", "..", "/", "../a", "a/../../b", "a/..", "/etc/passwd", "//etc/passwd", "a\\b"),
    *("..\\a", "a\0b", "a\nb", "a\x1b[0m", "\u202ea", "\ud800", "a\u2028b"),
    *("manifest.json", "./manifest.json", ".//manifest.json", "manifest.json/"),
    *(".tmp-manifest.json-0123", "a/.tmp-x", "./", "./."),
]


@pytest.mark.parametrize("native", UNSAFE)
def test_an_unsafe_native_path_is_refused(paths: AgentPaths, native: str) -> None:
    """Nothing is made inside or outside of the folder."""
    with pytest.raises(UnsafePath):
        transcripts.store(paths, native, "main", Source("t", data=b"x"), None, Disk())
    assert list(paths.folder.iterdir()) == []
    assert [entry.name for entry in paths.folder.parent.iterdir()] == ["a" * 24]


def test_a_hostile_id_as_native_path_never_leaves_the_folder(paths: AgentPaths) -> None:
    """Stored within transcripts/, or refused with an error of ours."""
    taken = 0
    for native in HOSTILE.values():
        with suppress(AgentsdirError):
            transcripts.store(paths, native, "main", Source("t", data=b"x"), None, Disk())
            taken += 1
    stored = [path for path in paths.transcripts.rglob("*") if path.is_file()]
    assert all(path.resolve().is_relative_to(paths.transcripts) for path in stored)
    assert 0 < len(stored) == taken < len(HOSTILE)
    assert [entry.name for entry in paths.folder.parent.iterdir()] == ["a" * 24]


@given(st.text(st.sampled_from("a./\\\0é"), max_size=8))
def test_a_native_path_stays_inside_or_is_refused(native: str) -> None:
    """Whatever it is made of."""
    paths = AgentPaths(Path("/root-of-test"), "a" * 24)
    try:
        stored = transcripts.store_path(paths, native)
    except UnsafePath:
        return
    assert paths.transcripts in stored.parents
    assert ".." not in stored.parts


def test_a_linked_folder_among_the_transcripts_is_refused(
    paths: AgentPaths, tmp_path: Path
) -> None:
    """A link in place of transcripts/, or of a folder in it, could lead anywhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    paths.transcripts.symlink_to(outside)
    with pytest.raises(UnsafePath):
        transcripts.store(paths, "a.jsonl", "main", Source("t", data=b"x"), None, Disk())
    paths.transcripts.unlink()
    paths.transcripts.mkdir()
    (paths.transcripts / "projects").symlink_to(outside)
    with pytest.raises(UnsafePath):
        transcripts.store(paths, "projects/a.jsonl", "main", Source("t", data=b"x"), None, Disk())
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("what", ["link", "folder"])
def test_what_is_no_regular_file_at_a_native_path_is_refused(
    paths: AgentPaths, tmp_path: Path, what: str
) -> None:
    """A link is not followed, neither to store nor to load."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    paths.transcripts.mkdir()
    if what == "link":
        (paths.transcripts / "a").symlink_to(secret)
    else:
        (paths.transcripts / "a").mkdir()
    with pytest.raises(UnsafePath):
        transcripts.store(paths, "a", "main", Source("t", data=b"secret and more"), None, Disk())
    with pytest.raises(UnsafePath):
        transcripts.load(paths, ["a"])
    assert secret.read_bytes() == b"secret"


def test_a_file_where_a_folder_must_be_is_an_error_of_ours(paths: AgentPaths) -> None:
    """Not a crash."""
    transcripts.store(paths, "a", "main", Source("t", data=b"x"), None, Disk())
    with pytest.raises(AgentsdirError):
        transcripts.store(paths, "a/b", "main", Source("t", data=b"x"), None, Disk())
    with pytest.raises(AgentsdirError):
        transcripts.store(paths, "n" * 300, "main", Source("t", data=b"x"), None, Disk())


def test_stored_transcripts_are_listed_in_the_manifest_by_path(agents: Any) -> None:
    """As the last sync left them."""
    paths_ = agents.publish()
    for native in ("b.jsonl", "a.jsonl"):
        synced = transcripts.store(
            paths_, native, "main", Source("t", data=native.encode()), None, Disk()
        )
        assert synced is not None
        agents.append(paths_, "transcript.synced", {"files": [synced.as_entry()]})
    manifest = json.loads((paths_.transcripts / "manifest.json").read_bytes())
    assert [entry["path"] for entry in manifest["files"]] == ["a.jsonl", "b.jsonl"]
    assert manifest["files"][0]["sha256"] == sha256(b"a.jsonl").hexdigest()
