"""checkpoint.json: what is written is read, and what was damaged is none."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pytest

from agentsdir.formats.ids import lasting_stand_in
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.checkpoint import (
    Checkpoint,
    number_of,
    read_checkpoint,
    write_checkpoint,
)
from agentsdir.formats.store.transcripts import CHUNK, Digest, begins_as

if TYPE_CHECKING:
    from agentsdir.formats.store.layout import AgentPaths

NAME = "a.jsonl"
KEYS = [("main", "u1:0"), ("a1", "\ud800:start")]
MADE = Checkpoint(
    "claude", NAME, 77, {NAME: "ab", "b": "cd"}, array("q", map(number_of, KEYS)), {"x": [1]}
)


@pytest.fixture
def paths(agents: Any) -> AgentPaths:
    """Return a new agent."""
    published: AgentPaths = agents.publish()
    return published


def test_a_checkpoint_is_read_as_it_was_written(paths: AgentPaths) -> None:
    """A shorter one that is written over a longer one, too."""
    assert read_checkpoint(paths) is None
    for made in (MADE, MADE._replace(state={"y": "z" * 500}), MADE):
        write_checkpoint(paths, made)
        assert read_checkpoint(paths) == made


@pytest.mark.parametrize("kind", ["flip", "cut", "drop"])
def test_a_checkpoint_that_is_damaged_anywhere_is_none(paths: AgentPaths, kind: str) -> None:
    """At every byte."""
    write_checkpoint(paths, MADE)
    data = paths.checkpoint.read_bytes()
    for at in range(len(data)):
        bad = {
            "flip": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
            "cut": data[:at],
            "drop": data[:at] + data[at + 1 :],
        }[kind]
        paths.checkpoint.write_bytes(bad)
        assert read_checkpoint(paths) is None, at


def test_what_cannot_be_written_leaves_none(paths: AgentPaths) -> None:
    """A state with half of a surrogate pair, and a place that is no file."""
    write_checkpoint(paths, MADE._replace(state={"x": "\ud800"}))
    assert read_checkpoint(paths) is None
    paths.checkpoint.mkdir()
    write_checkpoint(paths, MADE)
    assert read_checkpoint(paths) is None


def test_keys_that_it_has_are_never_denied() -> None:
    """Of others it says no, but for one in 2^60."""
    assert all(MADE.may_have([key]) for key in KEYS)
    assert not MADE.may_have([("main", "u2:0"), ("a1", "u1:0")])


def test_the_number_of_an_id_is_the_same_in_every_program() -> None:
    """It stands in files."""
    assert lasting_stand_in("u1") == 187265969646627541
    assert lasting_stand_in(("main", "t1")) == lasting_stand_in("main\0t1")
    assert lasting_stand_in("\ud800") != lasting_stand_in("\udfff")


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK // 2])
def test_the_beginning_of_a_copy_is_known_by_its_digest(agents: Any, size: int) -> None:
    """By the stamp's digests of its pieces, and without a stamp by all of them."""
    paths = agents.publish()
    data = bytes(range(251)) * (3 * CHUNK // 251)
    with write_agent(paths) as writer:
        synced = writer.store(NAME, "main", Source(NAME, data=data))
        writer.append("transcript.synced", {"files": [synced.as_entry()]}, agents.now())
    digest = Digest()
    digest.update(data[:size])
    assert begins_as(paths, NAME, size, digest.hexdigest())
    assert not begins_as(paths, NAME, size - 1, digest.hexdigest())
    assert not begins_as(paths, NAME, len(data) + 1, digest.hexdigest())
    assert not begins_as(paths, NAME, -size, digest.hexdigest())
    paths.stamps.unlink()
    assert begins_as(paths, NAME, size, digest.hexdigest())
    copy = paths.transcripts / NAME
    copy.write_bytes(b"#" + data[1:])
    assert not begins_as(paths, NAME, size, digest.hexdigest())
