"""What a resumed client sends as history, against the live view of the session.

The recordings of full-screen sessions lie beside the repository. Such a session is put into a
desk's home, and its client goes on with it; the fake API keeps what the client sent. What is live
is what the client goes on with, so that the two must be the same, but for what the client itself
adds and leaves out: one table for each client.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RECORDINGS = Path(__file__).parents[3] / "shared" / "interactive"
PROMPT = "Please: [[again]]"

Block = dict[str, Any]


class Item(NamedTuple):
    """A part of a conversation: ``text``, or the id of a ``call`` or of its ``result``.

    Of what a client sent, ``beside`` is text within a result.
    """

    kind: str
    said: str


def scenarios(client: str, *names: str, open_faults: Mapping[str, str]) -> pytest.MarkDecorator:
    """Return the recordings of a client's version, by scenario, as a parameter `recording`.

    Args:
        client: name and version.
        names: the scenarios.
        open_faults: those that may fail as yet, and why.
    """
    found = {name: RECORDINGS / client / f"tty_{name}" for name in names}
    cases = [
        pytest.param(
            path,
            id=name,
            marks=[pytest.mark.xfail(reason=open_faults[name], strict=False)]
            if name in open_faults
            else [],
        )
        for name, path in found.items()
        if path.is_dir()
    ]
    return pytest.mark.parametrize("recording", cases)


def copy_home(recording: Path, home: Path) -> None:
    """Put a recorded home folder into that of a desk."""
    shutil.copytree(recording / "tree" / "home", home, dirs_exist_ok=True)


def differences(blocks: list[Block], sent: list[Item], own: Mapping[str, str]) -> list[str]:
    """Say how what was sent differs from the live view after the last compaction.

    Args:
        blocks: the main conversation, superseded blocks too.
        sent: the history as the client sent it.
        own: patterns of what the client adds by itself, each with the reason.
    """
    main = [block for block in blocks if block["conversationId"] == "main"]
    live = [block for block in main if not block.get("superseded")]
    summaries = [at for at, block in enumerate(live) if _is_summary(block)]
    wanted = list(_items(live[summaries[-1] :] if summaries else live))
    gone = {*_items(main)} - {*_items(live)}
    return [
        *_missing([item for item in wanted if item.kind != "result"], sent),
        # Clients put the results of calls that were made at once behind all of these.
        *(f"not sent: {one}" for one in wanted if one.kind == "result" and one not in sent),
        *(f"sent, though superseded: {one}" for one in gone if any(_has(s, one) for s in sent)),
        *_added(wanted, sent, list(own)),
    ]


def _is_summary(block: Block) -> bool:
    """Tell whether a block is the summary that a compaction left to the model."""
    if block["type"] != "system" or block.get("hidden"):
        return False
    event = (block.get("metadata") or {}).get("event")
    return event == "compact_summary" or str(block["message"]).startswith("<state_snapshot>")


def _items(blocks: Sequence[Block]) -> Iterator[Item]:
    for block in blocks:
        kind = block["type"]
        if kind in ("user_message", "assistant_text"):
            content = block["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            texts = [part.get("text", "").strip() for part in parts]
            yield from (Item("text", text) for text in texts if text)
        elif kind in ("tool_use", "subagent") and block.get("toolUseId"):
            yield Item("call", own_id(block["toolUseId"]))
            if kind == "subagent":  # which has its result
                yield Item("result", own_id(block["toolUseId"]))
        elif kind == "tool_result":
            yield Item("result", own_id(block["toolUseId"]))
        elif _is_summary(block):
            yield Item("text", str(block["message"]).strip())


def own_id(name: str) -> str:
    """Return the id of a call as the model knows it; Gemini CLI puts the tool's name before it."""
    tool, _, rest = name.partition("__")
    return rest if rest.startswith(f"{tool}_") else name


def _missing(wanted: list[Item], sent: list[Item]) -> Iterator[str]:
    """Say what was not sent, or not in this order."""
    at = 0
    for item in wanted:
        found = next((n for n in range(at, len(sent)) if _has(sent[n], item)), None)
        if found is None:
            earlier = any(_has(one, item) for one in sent[:at])
            yield f"{'sent in another order' if earlier else 'not sent'}: {item}"
        else:
            at = found


def _added(wanted: list[Item], sent: list[Item], own: list[str]) -> Iterator[str]:
    """Say what was sent that is not in the live view, nor the client's own."""
    for one in sent:
        if one.kind == "beside" or any(_has(one, item) for item in wanted):
            continue
        if one.said != PROMPT and not any(re.match(p, one.said, re.DOTALL) for p in own):
            yield f"sent beside: {one}"


def _has(sent: Item, item: Item) -> bool:
    if item.kind == "text":
        words = " ".join(item.said.split())
        return sent.kind in ("text", "beside") and words in " ".join(sent.said.split())
    return sent == item
