"""What was acknowledged and is gone is said, once at least, and never written over in silence."""

from __future__ import annotations

from typing import Any

import pytest

from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent
from agentsdir.formats.errors import Invalid, ProviderError


def cut(paths: Any, records: int) -> None:
    """Take the last records off a log."""
    lines = paths.log.read_bytes().splitlines(keepends=True)
    paths.log.write_bytes(b"".join(lines[:-records]))


def test_a_log_that_lost_its_end_is_not_written_on(stage: Any) -> None:
    """The next writer says what is lost, and changes nothing."""
    paths = stage.new()
    stage.send(paths)
    cut(paths, 3)
    tree = stage.tree()
    with pytest.raises(Invalid, match="lost at the end, which were read before: 3") as refused:
        stage.send(paths)
    assert refused.value.kind == "log-shorter"
    assert stage.tree() == tree


def test_restoring_a_log_that_lost_its_end_says_so_and_lets_it_go_on(stage: Any) -> None:
    """Once; afterwards the agent works from what is left."""
    paths = stage.new()
    stage.send(paths)
    cut(paths, 3)
    restored = restore_agent(stage.services, paths)
    assert restored.lossy
    assert "log-shorter" in [finding.id for finding in restored.findings]
    assert not restore_agent(stage.services, paths).lossy
    assert stage.send(paths, "go on").response == "go on"


@pytest.mark.parametrize("damage", [b"junk\n", None], ids=["changed", "missing"])
def test_a_damaged_stored_transcript_stops_the_session(stage: Any, damage: bytes | None) -> None:
    """Going on without it would lose the context in silence."""
    paths = stage.new()
    stage.send(paths)
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    transcript.unlink()
    if damage is not None:
        transcript.write_bytes(damage)
    with pytest.raises(Invalid) as refused:
        stage.send(paths, "again")
    assert refused.value.kind == "transcript-damaged"
    assert stage.state(paths).open_turn is None
    assert (transcript.read_bytes() if damage else None) == damage


def test_text_that_was_streamed_is_in_the_log_also_when_its_block_was_never_completed(
    stage: Any, plugin: Any
) -> None:
    """What `send` printed, `replay` shows."""
    plugin(
        "halting",
        body="""
        block = self.transcript.block("assistant_text", "a", self.spec.now(), content="")
        yield stream.block_start("x", block)
        yield stream.text_delta("x", "the answer", "main")
        """,
    )
    paths = stage.new(provider="halting")
    assert stage.send(paths).response == "the answer"
    blocks = [e["block"] for e in replay(paths, lambda _: None) if e["type"] == "block_complete"]
    assert blocks[-1]["content"] == "the answer"


def test_a_replay_says_how_a_turn_failed(stage: Any, plugin: Any) -> None:
    """A turn without an answer differs from an agent that said nothing."""
    plugin("failing", body="raise ProviderError('overloaded', kind='rate-limited'); yield")
    paths = stage.new(provider="failing")
    with pytest.raises(ProviderError):
        stage.send(paths)
    (last,) = [e for e in replay(paths, lambda _: None) if e["type"] == "metadata_update"]
    assert last["metadata"]["error"]["message"]
