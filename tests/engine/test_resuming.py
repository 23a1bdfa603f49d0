"""A provider's blob is a cache: built-in providers go on with full context without it (D23)."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import MAX_BLOB, suspend
from agentsdir.formats.store.agent import read_agent

pytestmark = pytest.mark.feature("S-03")


def in_base64(blob: bytes) -> str:
    """Return a blob as session.json holds it."""
    return base64.b64encode(blob).decode()


ANYTHING = random.Random(1).randbytes(MAX_BLOB)

# What stands in place of the blob, given the blob of another session.
BLOBS: dict[str, Callable[[str], Any]] = {
    "emptied": lambda other: "",
    "one byte": lambda other: in_base64(b"\0"),
    "garbage": lambda other: in_base64(b'{"turns":-1'),
    "of a later turn": lambda other: in_base64(b'{"turns":99}'),
    "of no known shape": lambda other: in_base64(b"[[[]]]"),
    "of another session": lambda other: other,
    "1 MiB of anything": lambda other: in_base64(ANYTHING),
    "no base64": lambda other: "*" * 9,
    "no text": lambda other: {"turns": 1},
    "null": lambda other: None,
}


def bring(stage: Any, provider: str) -> Any:
    """Return a suspended agent that has had one turn."""
    paths = stage.script("two-turns.jsonl") if provider == "script" else stage.new()
    stage.send(paths, "one")
    suspend(stage.services, paths)
    return paths


def conversation(stage: Any, paths: Any) -> list[tuple[str, Any]]:
    """Return number of turn, kind and text of every block, from the log."""
    blocks = [entry["data"]["block"] for entry in stage.log(paths) if entry["event"] == "block"]
    return [(b["id"].rsplit(":", 2)[1], b["type"], b["content"]) for b in blocks]


WHOLE = {
    "echo": ["one", "one", "two", "two"],
    "script": ["one", "first answer", "two", "second answer"],
}


@pytest.mark.parametrize("blob", BLOBS)
@pytest.mark.parametrize("provider", WHOLE)
def test_a_session_goes_on_with_full_context_whatever_its_blob_is(
    stage: Any, provider: str, blob: str
) -> None:
    """The second turn is the second turn, and the transcript holds the first one unchanged."""
    paths, other = bring(stage, provider), bring(stage, provider)
    stage.send(other, "two")
    suspend(stage.services, other)
    (transcript,) = paths.transcripts.glob("*-*.jsonl")
    before = transcript.read_bytes()
    document = json.loads(paths.session.read_bytes())
    document["provider_state"] = BLOBS[blob](
        json.loads(other.session.read_bytes())["provider_state"]
    )
    paths.session.write_bytes(orjson.dumps(document))

    assert stage.send(paths, "two").response == WHOLE[provider][-1]

    assert [text for _, _, text in conversation(stage, paths)] == WHOLE[provider]
    assert [number for number, _, _ in conversation(stage, paths)] == ["1", "1", "2", "2"]
    assert transcript.read_bytes().startswith(before)
    assert transcript.read_bytes().count(b'"user_message"') == 2
    assert read_agent(paths, whole=True).findings == ()


@pytest.mark.parametrize("provider", WHOLE)
def test_a_session_that_a_boot_suspended_has_no_blob_and_misses_nothing(
    stage: Any, provider: str
) -> None:
    """As after a crash: no process asked the provider for one."""
    paths = stage.script("two-turns.jsonl") if provider == "script" else stage.new()
    stage.send(paths, "one")
    assert restore_agent(stage.services, paths).state == "suspended"
    assert json.loads(paths.session.read_bytes())["provider_state"] == ""
    assert stage.send(paths, "two").response == WHOLE[provider][-1]
    assert [text for _, _, text in conversation(stage, paths)] == WHOLE[provider]


def test_a_blob_of_the_largest_size_is_handed_back_as_it_was_given(stage: Any, plugin: Any) -> None:
    """At the limit it is kept; `provider_state` and the provider agree to the byte."""
    plugin(
        "hoarding",
        suspend=f"import random; return random.Random(1).randbytes({MAX_BLOB})",
        restore="""
        import hashlib
        spec = spec._replace(model=hashlib.sha256(state).hexdigest() if state else "none")
        """,
        body="yield self.answer(self.spec.model)",
    )
    import hashlib

    paths = stage.new(provider="hoarding")
    stage.send(paths)
    suspend(stage.services, paths)
    assert stage.send(paths).response == hashlib.sha256(ANYTHING).hexdigest()
    assert stage.send(paths).response == "none"
