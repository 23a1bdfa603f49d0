"""Qwen Code's transcripts: rows with a uuid and a parent, around turns as the API takes them.

Prompts, answers, thoughts, calls, results and tokens are read. Other rows are kept, hidden. A
rewind is a branch, so rows that are no ancestors of the last row are superseded
(docs/clients/gemini.md, "Forks"). ``/export`` writes the same conversation without branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini.checkpoints import ApiTurn, ApiTurnWriter
from agentsdir.adapters.gemini.emit import elide_bodies
from agentsdir.adapters.gemini.shapes import (
    count_of,
    dict_of,
    list_of,
    message_usage,
    part_kind,
    parts_of,
    plain_text,
    text_of,
)
from agentsdir.formats import times
from agentsdir.formats.blocks import MAIN, usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import read_rows
from agentsdir.formats.sink import DROPPED

if TYPE_CHECKING:
    from agentsdir.adapters.protocol import Transcript
    from agentsdir.formats.blocks import Usage
    from agentsdir.formats.rows import Row
    from agentsdir.formats.sink import ParseSink


# Subtypes of the client's bookkeeping rows.
_BOOKS = frozenset(
    [
        "agent_bootstrap",
        "agent_launch_prompt",
        "agent_retry",
        "agent_session_ready",
        "at_command",
        "attribution_snapshot",
        "background_task_completed",
        "branch_checkpoint",
        "chat_compression",
        "cron",
        "custom_title",
        "file_history_snapshot",
        "goal_runtime",
        "goal_state",
        "goal_turn_end",
        "managed_session_commit_v1",
        "managed_session_event_v1",
        "managed_session_header_v1",
        "mid_turn_user_message",
        "notification",
        "omni_recall",
        "parent_session",
        "realtime_message",
        "rewind",
        "session_approval_mode",
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_execution_engine",
        "session_model",
        "session_notes",
        "session_source",
        "session_sources_snapshot",
        "slash_command",
        "turn_result",
        "ui_telemetry",
        "user_text_elements",
    ]
)
_TYPES = ("user", "assistant", "tool_result", "system", "session_metadata", "tool_call")
_PROVENANCES = (
    "assistant_output", "goal_control", "goal_runtime", "real_user", "system", "tool_result",
)  # fmt: skip
# The kinds of user rows that a person typed; the client writes the others.
TYPED = ("", "at_command", "mid_turn_user_message")
CLIENTS = ("goal_control", "goal_runtime", "system")
HOOK_OPEN = "<qwen:user-prompt-submit-context>"
_HOOK_CLOSE = "</qwen:user-prompt-submit-context>"
_COUNTS = {
    "input": "promptTokenCount",
    "output": "candidatesTokenCount",
    "cached": "cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount",
    "tool": "toolUsePromptTokenCount",
    "total": "totalTokenCount",
}


class _Link(NamedTuple):
    """A row of the conversation's tree, with its number and its parent."""

    number: int
    parent: str | None
    # Whether the row says what its parent is, even if that is none.
    says: bool
    # Whether it is the client's note that the conversation went back.
    rewinds: bool
    row: Row


def read_qwen(transcript: Transcript, sink: ParseSink) -> None:
    """Read a transcript of Qwen Code, or a file of its ``/export``."""
    source, tally = transcript.source, sink.tally
    writer = ApiTurnWriter(sink, source.name, "")
    links: dict[str, _Link] = {}
    begins = [0]
    exported = False
    with source.open() as stream:
        for row in read_rows(stream, source.name, tally, sink.finding):
            value = row.value
            exported = exported or value.get("type") in ("session_metadata", "tool_call")
            writer.session = writer.session or text_of(value.get("sessionId"))
            version = text_of(value.get("version"))
            writer.version = sink.client_version = version or sink.client_version
            writer.reason = ""
            last = _write(writer, row, value, sink)
            begins.append(len(writer.handles))
            uuid, parent = value.get("uuid"), value.get("parentUuid")
            if isinstance(uuid, str):
                links[uuid] = _Link(
                    len(begins) - 2,
                    parent if isinstance(parent, str) else None,
                    "parentUuid" in value,
                    value.get("subtype") == "rewind",
                    row._replace(value=None, raw=b""),
                )
            if last == DROPPED:
                tally.settle_hidden(row, writer.reason or "empty")
            else:
                tally.settle_parsed(row)
    writer.end()
    if not exported:  # an export has the rows of one branch, in order, and not all of them
        live = _live_rows(links, len(begins) - 1, source.name, sink)
        for number in range(len(begins) - 1):
            if number not in live:
                for handle in writer.handles[begins[number] : begins[number + 1]]:
                    sink.supersede(handle, "rewind")
    if not writer.visible:
        message = "the transcript holds no conversation"
        sink.finding(Finding("no-messages", source.name, message))


def _write(writer: ApiTurnWriter, row: Row, value: dict[str, Any], sink: ParseSink) -> int:
    """Write one row; return its last visible block."""
    kind, message = text_of(value.get("type")), dict_of(value.get("message"))
    shown = dict_of(value.get("toolCallResult")).get("resultDisplay")
    turn = ApiTurn(
        writer.names.unique(text_of(value.get("uuid")) or "row"),
        row,
        parts_of(message.get("parts") if "parts" in message else message.get("content")),
        times.native(value.get("timestamp")),
        text_of(value.get("model")) or None,
        elide_bodies(shown),
    )
    _name_unknown(writer, turn, value)
    if kind == "user" and turn.parts:
        if text_of(value.get("subtype")) in TYPED and value.get("provenance") not in CLIENTS:
            return _prompt(writer, turn, dict_of(value.get("systemPayload")))
        # An answer may follow, so what it answers is shown.
        said = text_of(dict_of(value.get("systemPayload")).get("displayText"))
        text = said or plain_text(turn.parts)
        return writer.client_text(turn, text) if text.strip() else writer.user(turn)
    if kind == "tool_result" and turn.parts:
        return writer.user(turn)
    if kind == "tool_call" and isinstance(value.get("toolCall"), dict):
        return _exported_call(writer, turn, value["toolCall"])
    if kind == "assistant" and turn.parts:
        last = writer.model(turn)
        used = _usage(value.get("usageMetadata"))
        if used is not None:
            sink.amend(last, usage=used)
        sink.use(MAIN, usage(0, 0, exact=False) if used is None else used)
        return last
    if kind not in _TYPES:
        reason = "unknown"
    elif kind == "system" and text_of(value.get("subtype")):
        reason = value["subtype"].replace("_", "-") if value["subtype"] in _BOOKS else "unknown"
    else:
        reason = "bookkeeping"
    writer.log(turn, value, kind or None, reason=reason)
    return DROPPED


def _name_unknown(writer: ApiTurnWriter, turn: ApiTurn, value: dict[str, Any]) -> None:
    """Count the unknown kinds among a row's own fields."""
    kind, subtype, who = (value.get(name) for name in ("type", "subtype", "provenance"))
    if kind not in _TYPES:
        writer.drift(turn, "row", kind)
    if subtype is not None and text_of(subtype) not in _BOOKS:
        writer.drift(turn, "subtype", subtype)
    if who is not None and who not in _PROVENANCES:
        writer.drift(turn, "provenance", who)


def _prompt(writer: ApiTurnWriter, turn: ApiTurn, payload: dict[str, Any]) -> int:
    """Write a prompt. Texts that hooks and the client put around it are hidden.

    The client puts a hook's words last, as a part of their own; words that are merely like them
    and stand alone are a person's.
    """
    parts = turn.parts
    if len(parts) > 1 and _is_hooks(parts[-1]):
        writer.client_text(turn, parts[-1]["text"], hidden="hook-context")
        parts = parts[:-1]
    shown = text_of(payload.get("displayText"))
    texts = [part for part in parts if part_kind(part) == "text"]
    if shown.strip() and texts and plain_text(texts).strip() != shown.strip():
        writer.client_text(turn, plain_text(texts), hidden="prompt-as-sent")
        rest = [part for part in parts if part_kind(part) != "text"]
        parts = [{"text": shown}, *rest]
    return writer.user(turn._replace(parts=parts))


def _is_hooks(part: dict[str, Any]) -> bool:
    text = part["text"].strip() if part_kind(part) == "text" else ""
    return (
        text.startswith(HOOK_OPEN + "\n")
        and text.endswith("\n" + _HOOK_CLOSE)
        and text.count(HOOK_OPEN) == text.count(_HOOK_CLOSE) == 1
    )


def _exported_call(writer: ApiTurnWriter, turn: ApiTurn, call: dict[str, Any]) -> int:
    """Write a call and its result from a row of an export, which has no tool name."""
    call_id, title = text_of(call.get("toolCallId")), text_of(call.get("title"))
    status = text_of(call.get("status"))
    done = status in ("completed", "failed")
    outcome = ("error" if status == "failed" else "success") if done else "pending"
    name = text_of(call.get("kind")) or title or "tool"
    fields = {"displayName": title} if title else {}
    last = writer.use(turn, call_id, name, call.get("rawInput"), status=outcome, **fields)
    if done:
        texts = []
        for item in list_of(call.get("content")):
            content = dict_of(item).get("content")
            texts.append(text_of(dict_of(content).get("text")) or item)
        output: Any = texts[0] if len(texts) == 1 else texts or None
        last = writer.result(turn, call_id, output, failed=status == "failed")
    return last


def _usage(counts: Any) -> Usage | None:
    if not isinstance(counts, dict):
        return None
    tokens = {ours: counts.get(theirs, 0) for ours, theirs in _COUNTS.items()}
    got, thoughts = count_of(tokens["output"]), count_of(tokens["thoughts"])
    # With models of other makers, the answer's count has the thoughts'.
    if count_of(tokens["total"]) == count_of(tokens["input"]) + got and thoughts <= got:
        tokens["output"] = got - thoughts
    return message_usage(tokens)


def _live_rows(links: dict[str, _Link], rows: int, file: str, sink: ParseSink) -> set[int]:
    """Return the numbers of the last row's ancestors, and of rows without ids.

    Where a parent is not in the file, or a row says none, the row before it counts for it.
    """
    live = set(range(rows)) - {link.number for link in links.values()}
    names: list[str | None] = [None] * rows
    for uuid, link in links.items():
        names[link.number] = uuid
    if all(link.parent is None for link in links.values()):
        return set(range(rows))  # no row names another: the order is all that there is

    def report(kind: str, row: Row, message: str) -> None:
        sink.finding(Finding(kind, file, message, row.line, row.offset, row.length))

    at = next(reversed(links), None)
    while at is not None:
        link = links[at]
        if link.number in live:  # rows that name each other
            break
        live.add(link.number)
        at = link.parent
        if at is not None and at not in links:
            report("missing-parent", link.row, f"the parent {at!r} is not in the file")
            at = None if link.rewinds else _before(names, link.number, live)
        elif at is None and not link.says:
            at = _before(names, link.number, live)
        elif at is None and link.number and not link.rewinds:
            left = sum(name is not None for name in names[: link.number])
            if left:
                why = f"the row has no parent, so {left} rows before it are superseded"
                report("null-parent", link.row, why)
    return live


def _before(names: list[str | None], number: int, live: set[int]) -> str | None:
    """Return the nearest earlier row with an id that is not known to be live yet."""
    for at in range(number - 1, -1, -1):
        if names[at] is not None and at not in live:
            return names[at]
    return None
