"""`user` rows: prompts, tool results, and what the client says in a person's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.classify import (
    COMMAND,
    FEEDBACK_ON_A_PLAN,
    HOOK,
    INTERRUPT,
    META,
    NOTIFICATION,
    OUTPUT,
    PEER,
    PLAN,
    command_text,
    is_caveat,
    listen,
)
from agentsdir.adapters.claude.emit import FOLDED, HIDDEN, PARSED
from agentsdir.adapters.claude.notices import read_notice, teammate_notices
from agentsdir.adapters.claude.shapes import mapping, part_text, parts, text
from agentsdir.adapters.claude.tree import COMMAND as TYPED_COMMAND
from agentsdir.adapters.claude.tree import PROMPT
from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from agentsdir.adapters.claude.classify import (
        Voice,
    )
    from agentsdir.adapters.claude.emit import Place
    from agentsdir.adapters.claude.reading import Reading

# How long a tool took, under its several names, and how many milliseconds are in one.
_DURATIONS = {"durationMs": 1, "totalDurationMs": 1, "durationSeconds": 1000}
_ATTACHED = frozenset({"image", "document", "search_result"})


def read_user(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Turn a `user` row into blocks; return what became of it."""
    content = mapping(value.get("message")).get("content")
    if content is None:
        message = value.get("message")
        content = message if isinstance(message, str) else None
    if type(content) is list:
        for part in content:
            if type(part) is dict and part.get("type") == "tool_result":
                return _results(reading, value, place, content)
    return say(reading, value, place, content)


def say(reading: Reading, value: dict[str, Any], place: Place, content: Any) -> int:
    """Turn prompt content into a `user_message`, or what stands in its place."""
    pieces = parts(content)
    texts = [piece for piece in map(part_text, pieces) if piece is not None]
    is_whole = len(texts) == len(pieces)
    voice, divided = listen(value, texts, reading.caveat, is_whole=is_whole)
    whole = "\n".join(texts)
    mid_turn = value.get("type") == "attachment"
    if not voice.is_person:
        spelled = command_text(whole) if voice is COMMAND else whole
        reading.queue.deliver(whole, spelled, mid_turn=mid_turn)
        return _speak_for(reading, value, place, voice, texts)
    if voice.doubt:
        _doubt(reading, place, voice.doubt)
    spoken = iter(divided)
    kept: list[tuple[int, Any]] = []
    logged = False
    for index, part in enumerate(pieces):
        if part_text(part) is not None:
            before, typed = next(spoken)
            if before:
                reading.emitter.log_part(place, index + len(pieces), value, before)
                reading.reason = "injected"
                logged = True
            if typed:
                kept.append((index, typed))
        elif isinstance(part, dict) and text(part.get("type")) in _ATTACHED:
            kept.append((index, _attached(part)))
        else:
            reading.hide_part(place, index, value, part)
            logged = True
    if kept:
        said = "\n".join(item for _, item in kept if isinstance(item, str))
        typed_at = reading.queue.deliver(whole, said, mid_turn=mid_turn)
        if typed_at is not None:
            place = place._replace(timestamp=typed_at)
        index = kept[0][0]
        if len(kept) == 1 and isinstance(kept[0][1], str):
            reading.emitter.emit("user_message", place, index, {"content": kept[0][1]})
        else:
            content = [
                {"type": "text", "text": item} if isinstance(item, str) else item
                for _, item in kept
            ]
            reading.emitter.emit("user_message", place, index, {"content": content})
        reading.mark = PROMPT
        return PARSED
    if not logged:
        reading.reason = "empty"
        reading.emitter.log(place, 0, value)
    return HIDDEN


def _doubt(reading: Reading, place: Place, why: str) -> None:
    """Remark on a prompt that may be the client's: a lost word would be worse."""
    source = place.source
    finding = Finding(
        "doubtful-prompt", source["file"], source["line"], source["offset"], source["length"],
        f"shown as a prompt: {why}",
    )  # fmt: skip
    reading.emitter.sink.finding(finding)


def _attached(part: dict[str, Any]) -> dict[str, Any]:
    """Return an image or document part in the block format's spelling."""
    source = part.get("source")
    if not isinstance(source, dict) or "media_type" not in source:
        return part
    renamed = {("mediaType" if key == "media_type" else key): v for key, v in source.items()}
    return {**part, "source": renamed}


def _speak_for(
    reading: Reading, value: dict[str, Any], place: Place, voice: Voice, texts: list[str]
) -> int:
    whole = "\n".join(texts)
    if not voice.visible:
        if voice is META and is_caveat(whole):
            reading.caveat = place.base
        reading.reason = voice.event
        return reading.emitter.log(place, 0, value)
    metadata: dict[str, Any] = {"event": voice.event}
    message = whole
    if voice is NOTIFICATION:
        notice = read_notice(whole)
        reading.subagents.notified(notice)
        message = notice.summary or whole
        metadata.update(taskId=notice.task_id, toolUseId=notice.tool_use_id, status=notice.status)
    elif voice is COMMAND or voice is OUTPUT:
        message = command_text(whole)
        if voice is COMMAND:
            reading.mark = TYPED_COMMAND
    elif voice is PEER:
        for notice in teammate_notices(whole):
            reading.subagents.notified(notice)
    elif voice is INTERRUPT:
        message = whole.strip().strip("[]")
    elif voice is HOOK:
        message = whole.strip()
    elif voice is PLAN:
        reading.mark = PROMPT
        message, _, words = whole.partition(FEEDBACK_ON_A_PLAN)
        if words:
            reading.emitter.say(place, voice.subtype, message, metadata)
            reading.emitter.emit("user_message", place, 1, {"content": words})
            return PARSED
    if not message:
        reading.reason = "empty"
        return reading.emitter.log(place, 0, value)
    return reading.emitter.say(place, voice.subtype, message, metadata)


def _results(reading: Reading, value: dict[str, Any], place: Place, content: list[Any]) -> int:
    """Turn a row of tool results into blocks. Text beside results was typed beside an answer."""
    native = value.get("toolUseResult")
    if len(content) == 1:
        return _result(reading, value, place, 0, content[0], native)
    outcomes: set[int] = set()
    for index, part in enumerate(content):
        if isinstance(part, dict) and part.get("type") == "tool_result":
            became = _result(reading, value, place, index, part, native)
        else:
            became = _beside(reading, value, place, index, part)
        outcomes.add(became)
    # One visible block makes the row parsed; without any, one folded part makes it folded.
    return next(outcome for outcome in (PARSED, FOLDED, HIDDEN) if outcome in outcomes)


def _beside(reading: Reading, value: dict[str, Any], place: Place, index: int, part: Any) -> int:
    """Show the words, or the image, that a person put beside the answer to a permission dialog."""
    said = part_text(part)
    shown: Any = None
    if said is not None:
        voice, ((_, typed),) = listen(value, [said])
        shown = typed if voice.is_person else None
        if voice is INTERRUPT:
            metadata = {"event": voice.event}
            fields = {"subtype": voice.subtype, "message": said.strip("[]"), "metadata": metadata}
            reading.emitter.emit("system", place, index, fields)
            return PARSED
        if shown and voice.doubt:
            _doubt(reading, place, voice.doubt)
    elif isinstance(part, dict) and text(part.get("type")) in _ATTACHED:
        shown = [_attached(part)]
    if not shown:
        if said is None:
            return reading.hide_part(place, index, value, part)
        reading.reason = "injected" if said else "empty"
        return reading.emitter.log_part(place, index, value, part)
    # It stands within a turn, as what is typed while one runs, so it opens no branch.
    reading.emitter.emit("user_message", place, index, {"content": shown})
    return PARSED


def _result(
    reading: Reading,
    value: dict[str, Any],
    place: Place,
    index: int,
    part: dict[str, Any],
    native: Any,
) -> int:
    tool_use_id = text(part.get("tool_use_id"))
    details = native if type(native) is dict else {}
    error = (
        part.get("is_error") is True
        or details.get("interrupted") is True
        or value.get("toolDenialKind") is not None
    )
    output = part.get("content")
    if reading.subagents.result(place.conversation, tool_use_id, output, error, native):
        reading.reason = "subagent-result"
        return FOLDED
    fields: dict[str, Any] = {
        "toolUseId": tool_use_id,
        "output": "" if output is None else output,
        "isError": error,
    }
    duration = _duration(details)
    if duration is not None:
        fields["durationMs"] = duration
    reading.emitter.emit("tool_result", place, index, fields)
    reading.calls.answered(tool_use_id, "error" if error else "success", place)
    return PARSED


def _duration(details: dict[str, Any]) -> int | None:
    if _DURATIONS.keys().isdisjoint(details):
        return None
    for name, unit in _DURATIONS.items():
        spent = details.get(name)
        if isinstance(spent, (int, float)) and 0 <= spent < 1e12:
            return round(spent * unit)
    return None
