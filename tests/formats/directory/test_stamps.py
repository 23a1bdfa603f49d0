"""Transcripts that are believed unread, digests of pieces, and stamps that do not fit."""

from __future__ import annotations

import os
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.errors import Invalid
from agentsdir.formats.source import Source
from agentsdir.formats.store import stamps
from agentsdir.formats.store.agent import load_sound, read_agent, write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.stamps import NO_STAMPS, Stamp, read_stamps
from agentsdir.formats.store.transcripts import CHUNK, Digest, digest_beginning

if TYPE_CHECKING:
    from pathlib import Path

NAME = "a.jsonl"
LINE = b'{"row": "0123456789"}\n'


def rows(size: int) -> bytes:
    """Return about `size` bytes of lines."""
    return LINE * (size // len(LINE))


def sync(agents: Any, paths: AgentPaths, source: Source) -> Any:
    """Store a transcript and log it, as a turn does."""
    with write_agent(paths) as writer:
        synced = writer.store(NAME, "main", source)
        if synced is not None:
            writer.append("transcript.synced", {"files": [synced.as_entry()]}, agents.now())
        return synced


def entry_of(paths: AgentPaths) -> dict[str, Any]:
    """Return what state.json has of the transcript."""
    return read_agent(paths).state.transcripts[NAME]


def is_sound(paths: AgentPaths) -> bool:
    """Tell whether a turn would take the stored transcript."""
    state = read_agent(paths).state
    try:
        load_sound(paths, state)
    except Invalid:
        return False
    return True


def change(path: Path, at: int) -> None:
    """Put another byte in place, and the times of before."""
    status = path.stat()
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"#")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def forge(paths: AgentPaths) -> None:
    """Have stamps.json say that the stored copy looks as it does now: as no change of times did."""
    known = read_stamps(paths).transcripts[NAME]
    now = Stamp.of((paths.transcripts / NAME).stat())
    stamps.keep(paths, {NAME: known._replace(stored=now)})


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """Return the client's own file, of two and a half pieces."""
    path = tmp_path / "client.jsonl"
    path.write_bytes(rows(5 * CHUNK // 2))
    return path


@given(st.integers(0, 5), st.integers(-1, 1), st.lists(st.integers(1, 3 * CHUNK), max_size=4))
def test_the_digest_of_a_file_is_that_of_the_digests_of_its_pieces(
    pieces: int, more: int, cuts: list[int]
) -> None:
    """However its bytes come; of a file of one piece, that of its bytes."""
    data = bytes(max(0, pieces * CHUNK + more))
    digest, at = Digest(), 0
    for cut in [*cuts, len(data)]:
        digest.update(data[at : at + cut])
        at += cut
    parts = [sha256(data[i : i + CHUNK]).digest() for i in range(0, len(data), CHUNK)]
    whole = len(parts) < 2
    assert digest.hexdigest() == sha256(data if whole else b"".join(parts)).hexdigest()
    assert digest.size == len(data)


def test_a_large_transcript_has_its_chunk_in_the_log_and_a_small_one_has_not(
    agents: Any, client: Path
) -> None:
    """In state.json and manifest.json too; each is hashed again to the same."""
    paths = agents.publish()
    synced = sync(agents, paths, Source("t", path=client))
    assert synced.as_entry()["chunk"] == entry_of(paths)["chunk"] == CHUNK
    assert orjson.loads(paths.manifest.read_bytes())["files"][0]["chunk"] == CHUNK
    with client.open("rb") as stream:
        assert digest_beginning(stream, entry_of(paths)) == entry_of(paths)["sha256"]


def test_a_transcript_of_one_piece_has_no_chunk_in_the_log(agents: Any) -> None:
    """So that small files keep their entries."""
    synced = sync(agents, agents.publish(), Source("t", data=bytes(CHUNK)))
    assert "chunk" not in synced.as_entry()


@pytest.mark.parametrize("chunk", ["1048576", 1, 0, -5, True, 2.0, None, 65_535])
def test_a_chunk_that_is_no_size_of_pieces_counts_as_absent(
    agents: Any, client: Path, chunk: object
) -> None:
    """The digest is then taken for that of the whole file."""
    paths = agents.publish()
    (paths.transcripts).mkdir()
    shutil.copy(client, paths.transcripts / NAME)
    data = client.read_bytes()
    digest = sha256(data).hexdigest()
    entry = {"path": NAME, "role": "main", "size": len(data), "sha256": digest, "chunk": chunk}
    agents.append(paths, "transcript.synced", {"files": [entry]})
    assert "chunk" not in entry_of(paths)
    assert is_sound(paths)


@pytest.mark.parametrize("size", [200_000, 60_000])
def test_pieces_of_another_size_are_hashed_as_the_log_says(agents: Any, size: int) -> None:
    """Another writer may have chosen it; also for a file that is smaller than one."""
    paths, chunk = agents.publish(), 65_536
    paths.transcripts.mkdir()
    data = rows(size)
    (paths.transcripts / NAME).write_bytes(data)
    parts = [sha256(data[i : i + chunk]).digest() for i in range(0, len(data), chunk)]
    digest = sha256(b"".join(parts)).hexdigest()
    entry = {"path": NAME, "role": "main", "size": len(data), "sha256": digest, "chunk": chunk}
    agents.append(paths, "transcript.synced", {"files": [entry]})
    assert is_sound(paths)
    change(paths.transcripts / NAME, 3)
    assert not is_sound(paths)


def test_what_was_appended_in_many_syncs_has_the_digest_of_the_whole(
    agents: Any, client: Path
) -> None:
    """Also over the ends of pieces; and the copy is the client's file."""
    paths = agents.publish()
    client.write_bytes(b"")
    for size in (10, CHUNK - 100, 300, CHUNK, 5, 2 * CHUNK + 7):
        with client.open("ab") as stream:
            stream.write(os.urandom(size))
        sync(agents, paths, Source("t", path=client))
        anew = Digest()
        anew.update(client.read_bytes())
        assert entry_of(paths)["sha256"] == anew.hexdigest()
    assert (paths.transcripts / NAME).read_bytes() == client.read_bytes()


class Reads:
    """Counts the bytes that are read from a file while it is in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hashed = 0
        update = Digest.update

        def counting(digest: Digest, data: bytes) -> None:
            self.hashed += len(data)
            update(digest, data)

        monkeypatch.setattr(Digest, "update", counting)


def test_only_the_last_piece_is_read_again(
    agents: Any, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy that looks as it did, and of a client's file that has grown."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    reads = Reads(monkeypatch)
    assert is_sound(paths)
    assert sync(agents, paths, Source("t", path=client)) is None
    assert reads.hashed == 0
    with client.open("ab") as stream:
        stream.write(LINE)
    assert sync(agents, paths, Source("t", path=client)).size == client.stat().st_size
    assert 0 < reads.hashed <= CHUNK + len(LINE)
    assert is_sound(paths)


def test_a_provider_that_appends_to_the_stored_copy_has_only_its_last_piece_read(
    agents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `echo` does: its transcript is the copy, and what this turn adds."""
    paths = agents.publish()
    data = rows(3 * CHUNK)
    sync(agents, paths, Source("t", data=data))
    reads = Reads(monkeypatch)
    longer = Source.following("t", paths.transcripts / NAME, len(data), LINE)
    assert longer.read() == data + LINE
    assert longer.size == len(data) + len(LINE)
    assert sync(agents, paths, longer).size == len(data) + len(LINE)
    assert 0 < reads.hashed <= CHUNK + len(LINE)
    assert (paths.transcripts / NAME).read_bytes() == data + LINE
    assert is_sound(paths)


def test_a_changed_copy_is_found_by_its_times(agents: Any, client: Path) -> None:
    """Whatever else is as it was: the time of its inode cannot be put back."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    change(paths.transcripts / NAME, 5)
    assert not is_sound(paths)
    with client.open("ab") as stream:
        stream.write(LINE)
    with pytest.raises(Invalid, match="differs"):
        sync(agents, paths, Source("t", path=client))


def test_other_bytes_under_the_same_stamp_are_missed_by_a_turn(agents: Any, client: Path) -> None:
    """But what is logged next has the digest of what was synced, so that reading all finds them."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    change(paths.transcripts / NAME, 5)
    forge(paths)
    assert is_sound(paths)
    with client.open("ab") as stream:
        stream.write(LINE)
    sync(agents, paths, Source("t", path=client))
    assert is_sound(paths)
    entry = entry_of(paths)
    with (paths.transcripts / NAME).open("rb") as stored, client.open("rb") as native:
        assert digest_beginning(stored, entry) != entry["sha256"]
        assert digest_beginning(native, entry) == entry["sha256"]
    paths.stamps.unlink()
    assert not is_sound(paths)


def test_a_clients_file_that_was_replaced_or_cut_is_compared_whole(
    agents: Any, client: Path, tmp_path: Path
) -> None:
    """Another inode, and one that did not grow."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    change(client, 5)
    with pytest.raises(Invalid, match="differs"):
        sync(agents, paths, Source("t", path=client))
    change(client, 5)
    client.write_bytes(rows(5 * CHUNK // 2))
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"#" + client.read_bytes()[1:] + LINE)
    other.replace(client)
    with pytest.raises(Invalid, match="differs"):
        sync(agents, paths, Source("t", path=client))


def test_a_copy_that_is_ahead_of_the_log_is_read_whole(agents: Any, client: Path) -> None:
    """A crash between a sync and its record leaves a stamp that the log does not bear out."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    with client.open("ab") as stream:
        stream.write(LINE)
    with write_agent(paths) as writer:
        assert writer.store(NAME, "main", Source("t", path=client)) is not None
    assert is_sound(paths)  # what the log says of it
    again = sync(agents, paths, Source("t", path=client))
    assert again.size == client.stat().st_size
    assert is_sound(paths)


def wrong_digest(data: bytes) -> bytes:
    """Return stamps whose digest is another."""
    return data.replace(b'"digest":"', b'"digest":"0', 1)


def with_document(**changes: Any) -> Any:
    """Return what makes stamps.json anew with other values, under a digest that fits."""

    def make(data: bytes) -> bytes:
        document = orjson.loads(data)
        del document["digest"]
        said = orjson.dumps({**document, **changes})
        digest = sha256(said).hexdigest()[:16]
        return said[:-1] + b',"digest":"' + digest.encode() + b'"}\n'

    return make


HOSTILE: dict[str, Any] = {
    "deleted": None,
    "empty": lambda _data: b"",
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + data,
    "other digest": wrong_digest,
    "no JSON": lambda _data: b"\0" * 512,
    "a list": lambda _data: b"[1]\n",
    "transcripts null": with_document(transcripts=None),
    "left a list": with_document(left=[1, 2, 3, 4]),
    "left of lists": with_document(left={"events.jsonl": [1, 2, 3, 4]}),
    "left of words": with_document(left={"events.jsonl": "1 2 3 four"}),
    "left of three": with_document(left={"events.jsonl": "1 2 3"}),
    "a stored null": with_document(
        transcripts={NAME: {"stored": None, "native": None, "chunks": ""}}
    ),
    "chunks no hex": with_document(
        transcripts={NAME: {"stored": "1 2 3 4", "native": None, "chunks": "zz"}}
    ),
    "no chunks": with_document(
        transcripts={NAME: {"stored": "1 2 3 4", "native": None, "chunks": ""}}
    ),
    "another root's": with_document(
        transcripts={NAME: {"stored": "1 2 3 4", "native": "1 2 3 4", "chunks": "00" * 32}}
    ),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_stamps_that_do_not_fit_cost_time_and_nothing_else(
    agents: Any, client: Path, how: str
) -> None:
    """A sound copy is taken, a changed one refused, and the next sync makes them good again."""
    paths = agents.publish()
    sync(agents, paths, Source("t", path=client))
    make = HOSTILE[how]
    data = paths.stamps.read_bytes()
    paths.stamps.unlink() if make is None else paths.stamps.write_bytes(make(data))
    assert is_sound(paths)
    change(paths.transcripts / NAME, 5)
    assert not is_sound(paths)
    shutil.copyfile(client, paths.transcripts / NAME)
    with client.open("ab") as stream:
        stream.write(LINE)
    assert sync(agents, paths, Source("t", path=client)).size == client.stat().st_size
    assert read_stamps(paths).transcripts[NAME].stored.size == client.stat().st_size
    # That the agent is in order says again who has read all of its log.
    with write_agent(paths, whole=True) as writer:
        writer.leave_stamp()
    assert stamps.is_untouched(paths)


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_stamps_are_never_read_or_written_through_what_is_no_file(
    agents: Any, client: Path, tmp_path: Path, kind: str
) -> None:
    """A link could lead anywhere."""
    paths = agents.publish()
    paths.stamps.unlink()
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    if kind == "link":
        paths.stamps.symlink_to(other)
    elif kind == "folder":
        paths.stamps.mkdir()
    else:
        os.mkfifo(paths.stamps)
    sync(agents, paths, Source("t", path=client))
    assert is_sound(paths)
    assert read_stamps(paths) == NO_STAMPS
    assert other.read_bytes() == b"theirs"


def test_who_was_left_in_order_is_untouched_until_a_file_is_written_to(agents: Any) -> None:
    """Or replaced, or removed; a new agent is, too."""
    paths = agents.publish()
    assert stamps.is_untouched(paths)
    agents.append(paths, "agent.tagged", {"tags": ["x"]})
    assert stamps.is_untouched(paths)
    for path in (paths.log, paths.state, paths.history, paths.session, paths.descriptor):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # its inode is of now
        assert not stamps.is_untouched(paths), path
        with write_agent(paths, whole=True) as writer:
            writer.leave_stamp()
        assert stamps.is_untouched(paths), path
    paths.transcripts.mkdir()
    paths.manifest.write_bytes(b"{}")
    assert not stamps.is_untouched(paths)


def test_a_copied_agent_is_not_untouched(agents: Any, tmp_path: Path) -> None:
    """Its files are others."""
    paths = agents.publish()
    copy = AgentPaths(tmp_path / "copy" / paths.id, paths.id)
    shutil.copytree(paths.folder, copy.folder)
    assert not stamps.is_untouched(copy)


def test_a_writer_that_dies_before_its_end_leaves_no_agent_untouched(agents: Any) -> None:
    """An event of a command that has not ended is in the log, and in no stamp."""
    paths = agents.publish()
    disk = Disk()
    with disk.synced_at_end():
        with write_agent(paths, disk=disk) as writer:
            writer.append("agent.tagged", {"tags": ["x"]}, agents.now())
        assert not stamps.is_untouched(paths)
    assert stamps.is_untouched(paths)


def test_a_command_says_nothing_of_an_agent_that_was_not_left_in_order(agents: Any) -> None:
    """It has read the end of the log, and not what was changed before."""
    paths = agents.publish()
    paths.history.touch()
    for disk in (Disk(), None):
        with Disk().synced_at_end(), write_agent(paths, disk=disk) as writer:
            writer.append("agent.tagged", {"tags": ["x"]}, agents.now())
        assert not stamps.is_untouched(paths)


def test_no_stamp_is_left_where_a_file_is_not_as_the_log_says(agents: Any) -> None:
    """A log with a torn tail, and a history of another size."""
    paths = agents.publish()
    paths.stamps.unlink()
    with paths.log.open("ab") as stream:
        stream.write(b'{"seq":')
    with write_agent(paths) as writer:
        writer.leave_stamp()
    assert read_stamps(paths) == NO_STAMPS
