"""Damage at every byte of every file but the log: nothing breaks, nothing wrong is believed."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import printed

from agentsdir.engine.lookup import find_agent, inspection
from agentsdir.engine.providers import suspension_blob
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.session_data import saved_session
from agentsdir.engine.slots import suspend
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import Invalid
from agentsdir.formats.store import stamps
from agentsdir.formats.store.agent import load_sound, read_agent
from agentsdir.formats.store.derived import state_document

KINDS = ("flip", "zero", "cut", "insert", "delete")


def damaged(data: bytes, kind: str, at: int) -> bytes:
    """Return `data` damaged at one byte; never equal to it."""
    if kind == "cut":
        return data[:at]
    if kind == "insert":
        return data[:at] + b"{" + data[at:]
    if kind == "delete":
        return data[:at] + data[at + 1 :]
    byte = 0 if kind == "zero" else data[at] ^ 1 << at % 8
    return data[:at] + bytes([byte]) + data[at + 1 :]


@pytest.fixture
def paths(stage: Any, memory_path: Path) -> Any:
    """Return a suspended agent with a name and one turn."""
    stage.root = memory_path / "root"
    made = stage.new(name="ada")
    stage.send(made, "é 𝄞")
    suspend(stage.services, made)
    return made


def documents(paths: Any) -> list[Any]:
    """Return every file that is derived from the log."""
    return [paths.state, paths.session, paths.history, paths.descriptor, paths.manifest]


@pytest.mark.feature("S-04")
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_json_damaged_at_any_byte_is_never_believed(paths: Any, kind: str) -> None:
    """Readers see what the log says, whatever the short cut says."""
    data = paths.state.read_bytes()
    truth = state_document(read_agent(paths, whole=True).state)
    for at in range(len(data)):
        paths.state.write_bytes(damaged(data, kind, at))
        reading = read_agent(paths)
        assert (at, state_document(reading.state)) == (at, truth)
        assert reading.findings == (), at


@pytest.mark.feature("S-04")
def test_derived_files_damaged_at_any_byte_come_back_the_same(stage: Any, paths: Any) -> None:
    """All five are damaged at once, each at every byte; readers read on, and restore mends."""
    sound = {path: path.read_bytes() for path in documents(paths)}
    log = paths.log.read_bytes()
    for at in range(max(map(len, sound.values()))):
        for path, data in sound.items():
            kind = KINDS[(at + at // len(data)) % len(KINDS)]
            path.write_bytes(damaged(data, kind, at % len(data)))
        state = read_agent(paths).state
        assert state.session.state == "suspended"
        assert isinstance(suspension_blob(paths), bytes)
        restored = restore_agent(stage.services, paths)
        assert restored.error is None, at
        assert {path: path.read_bytes() for path in sound} == sound, at
    assert paths.log.read_bytes() == log


@pytest.mark.parametrize("kind", KINDS)
def test_derived_files_damaged_at_any_byte_stop_no_reader(paths: Any, kind: str) -> None:
    """What is shown of the agent is shown as before."""
    sound = {path: path.read_bytes() for path in documents(paths)}
    shown = (
        inspection(paths, read_agent(paths)),
        printed(saved_session(paths, read_agent(paths).state)),
    )
    for at in range(0, max(map(len, sound.values())), 3):
        for path, data in sound.items():
            if path != paths.state:
                path.write_bytes(damaged(data, kind, at % len(data)))
        reading = read_agent(paths)
        assert (
            inspection(paths, reading),
            printed(saved_session(paths, reading.state)),
        ) == shown, at


@pytest.mark.feature("C-05", "S-04")
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_is_restored_once_and_no_byte_of_it_is_changed(
    stage: Any, paths: Any, kind: str
) -> None:
    """Old bytes stand, the second time finds nothing to do, and what was lost is said."""
    sound = {path: path.read_bytes() for path in (paths.log, *documents(paths))}
    data = sound.pop(paths.log)
    stage.ids.made = 10**6  # no damaged id is one that is given out later
    for at in range(KINDS.index(kind), len(data), 41):
        for path, document in sound.items():
            path.write_bytes(document)
        bad = damaged(data, kind, at)
        paths.log.write_bytes(bad)
        first = restore_agent(stage.services, paths)
        assert first.error is None, at
        if at < len(data) - 1 - len(data.splitlines()[-1]):
            assert first.lossy, at  # the last record has none after it that could name it
        tree = stage.tree()
        assert tree[str(paths.log.relative_to(stage.root))].startswith(bad), at
        assert restore_agent(stage.services, paths).actions == (), at
        # A stamp says that the agent was read a second time, and is in order.
        tree[str(paths.stamps.relative_to(stage.root))] = paths.stamps.read_bytes()
        assert stage.tree() == tree, at
        with suppress(Invalid):  # what the log says of a transcript may be what was damaged
            assert stage.send(paths, "goes on").response == "goes on"
        assert paths.log.read_bytes().startswith(bad), at


@pytest.mark.parametrize("kind", KINDS)
def test_an_agentsdir_json_damaged_at_any_byte_is_refused_or_read(
    stage: Any, paths: Any, kind: str
) -> None:
    """It is never an unexpected error, and never written over."""
    document = stage.root / "agentsdir.json"
    data = document.read_bytes()
    for at in range(len(data)):
        document.write_bytes(damaged(data, kind, at))
        with suppress(Invalid):
            assert find_agent(stage.services.layout, paths.id).id == paths.id
        assert document.read_bytes() == damaged(data, kind, at)


@pytest.mark.feature("S-04")
@pytest.mark.parametrize("kind", KINDS)
def test_a_transcript_damaged_at_any_byte_is_not_gone_on_from(
    stage: Any, paths: Any, kind: str
) -> None:
    """No turn runs, the message ends as failed, and the bytes are left for a user to mend.

    The gate is asked at every byte, and a whole `send` at some of them.
    """
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    data = transcript.read_bytes()
    state = read_agent(paths).state
    for at in range(len(data)):
        bad = damaged(data, kind, at)
        transcript.write_bytes(bad)
        with pytest.raises(Invalid) as refused:
            load_sound(paths, state)
        assert refused.value.kind == "transcript-damaged"
        if at % 97 == 0 or at == len(data) - 1:
            with pytest.raises(Invalid) as refused:
                stage.send(paths, "again")
            assert refused.value.kind == "transcript-damaged"
            assert stage.events(paths)[-2:] == ["turn.error", "message.delivered"]
            assert transcript.read_bytes() == bad
            assert stage.state(paths).open_turn is None
    transcript.write_bytes(data)
    assert stage.send(paths, "mended").response == "mended"


@pytest.mark.parametrize("kind", KINDS)
def test_stamps_that_were_damaged_are_believed_in_nothing(paths: Any, kind: str) -> None:
    """At every byte: a sound transcript is taken, and a changed one is refused."""
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    sound, data = transcript.read_bytes(), paths.stamps.read_bytes()
    state = read_agent(paths).state
    for at in range(len(data)):
        paths.stamps.write_bytes(damaged(data, kind, at))
        transcript.write_bytes(sound)
        assert list(load_sound(paths, state)) == [transcript.name]
        transcript.write_bytes(damaged(sound, "flip", at % len(sound)))
        with pytest.raises(Invalid):
            load_sound(paths, state)


def test_digests_in_a_stamp_count_only_if_the_log_says_them(paths: Any) -> None:
    """A stamp that fits a changed file in all else is not believed."""
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    data = transcript.read_bytes()
    transcript.write_bytes(data.replace(b"\xc3\xa9", b"\xc3\xa8"))
    forged = stamps.TranscriptStamp(
        stamps.Stamp.of(transcript.stat()), None, (sha256(transcript.read_bytes()).digest(),)
    )
    stamps.keep(paths, {transcript.name: forged})
    with pytest.raises(Invalid) as refused:
        load_sound(paths, read_agent(paths).state)
    assert refused.value.kind == "transcript-damaged"


def test_what_a_stamp_misses_is_found_by_validate(stage: Any, paths: Any) -> None:
    """Other bytes of the same size under the same times: a provider is given them.

    The last piece is read when more is stored; in another one, only `validate` finds them.
    """
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    known = stamps.read_stamps(paths).transcripts[transcript.name]
    data = transcript.read_bytes()
    transcript.write_bytes(data.replace(b"\xc3\xa9", b"\xc3\xa8"))
    # As if the change had left no trace in the times.
    missed = known._replace(stored=stamps.Stamp.of(transcript.stat()))
    stamps.keep(paths, {transcript.name: missed})
    assert list(load_sound(paths, read_agent(paths).state)) == [transcript.name]
    with pytest.raises(Invalid) as refused:
        stage.send(paths, "again")
    assert refused.value.kind == "transcript-damaged"
    found = [problem.id for problem in validate([paths.folder])]
    assert found == ["transcript-differs"]
