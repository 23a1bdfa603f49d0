"""A recorded store lists each of its sessions once, under the client's title or the first prompt.

The full-screen recordings are judged by the keys that were typed (tests/interactive).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import StoreReader
from agentsdir.engine.parse import ClientStore, list_native

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
STORES = sorted(path for path in CORPUS.glob("gemini-*/**/.gemini") if path.is_dir())
GEMINI = registry.get("gemini")


def _records(path: Path) -> list[dict[str, Any]]:
    """Return what a file's rows say, plainly: a header, changes, and messages in their order."""
    rows = []
    text = path.read_text()
    for line in [text] if path.suffix == ".json" else text.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            row.update(row.pop("$set", {}))
            messages = row.pop("messages", None) or []
            rows += [row, *(one for one in messages if isinstance(one, dict))]
    return rows


def _typed(record: dict[str, Any]) -> str:
    content = record.get("content") if record.get("type") == "user" else None
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    text = "".join(part.get("text", "") for part in parts)
    return "" if text.startswith("<session_context>") else text


def _expected(store: Path) -> dict[str, set[str]]:
    """Return the titles that each session of a store may have: of one id several files tell."""
    titles: dict[str, set[str]] = {}
    for path in store.glob("tmp/*/chats/session-*"):
        if path.suffix == ".gz":  # the recording's own packing: no client would find it
            continue
        records = _records(path)
        typed = [text for text in map(_typed, records) if text]
        if typed and not any(one.get("kind") == "subagent" for one in records):
            session = next(one["sessionId"] for one in records if "sessionId" in one)
            own = [one["summary"] for one in records if "summary" in one]
            title = own[-1] if own else typed[0]
            titles.setdefault(session, set()).add(" ".join(title.split()))
    return titles


@pytest.mark.skipif(not STORES, reason="the corpus of recorded runs is not here")
@pytest.mark.parametrize("store", STORES, ids=lambda path: str(path.relative_to(CORPUS)))
def test_a_recorded_store_lists_each_session_once_with_its_title(store: Path) -> None:
    """Stubs, subagents and the document that a log goes on from are no sessions of their own."""

    def refuse(error: Exception) -> None:
        raise AssertionError(error)

    reader = GEMINI.reader
    assert isinstance(reader, StoreReader)
    rows = [one.session for one in list_native([ClientStore(GEMINI, reader, store)], refuse)]
    expected = _expected(store)
    assert sorted(row.id for row in rows) == sorted(expected)
    for row in rows:
        cut = {title if len(title) <= 200 else title[:199] + "…" for title in expected[row.id]}
        assert row.title in cut
