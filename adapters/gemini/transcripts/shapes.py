"""What Gemini's nested values are: parts, texts, call ids, outputs. Pure, and safe for any JSON.

A message's content is a PartListUnion: a string, a part, or a list of both. Clients of all ages
write all forms, and a resume rewrites one as another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from agentsdir.formats import jsontext, times
from agentsdir.formats.digest import short_hash

if TYPE_CHECKING:
    from datetime import datetime

# How a call ended, or stands, and what we say.
CALL_STATUSES = {
    "validating": "pending",
    "scheduled": "pending",
    "awaiting_approval": "pending",
    "executing": "running",
    "success": "success",
    "error": "error",
    "cancelled": "error",
}

Part: TypeAlias = "dict[str, Any]"

MODEL_TYPES = ("gemini", "model", "bob-shell")
NOTICE_TYPES = ("info", "warning", "error")
MESSAGE_TYPES = ("gemini", "user", *NOTICE_TYPES, *MODEL_TYPES[1:])
# What accompanies a part, and is all of a part that only carries a signature.
_BESIDE = frozenset({"text", "thought", "thoughtSignature", "videoMetadata", "mediaResolution"})

MASKED = "<tool_output_masked>"


def text_of(value: Any) -> str:
    """Return `value` if it is a string, else the empty string."""
    return value if type(value) is str else ""


def dict_of(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if type(value) is dict else {}


def list_of(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty one."""
    return value if type(value) is list else []


def entries_of(value: Any) -> list[Any]:
    """Return `value` if it is a list, else what stands in the place of one as its only entry."""
    return value if type(value) is list else [value]


def moment_of(timestamp: Any) -> datetime | None:
    """Return a foreign timestamp as a moment, or None where it is no time."""
    text = times.native(timestamp)
    try:
        return None if text is None else times.from_text(text)
    except (OverflowError, ValueError):  # a leap second, the first day of the calendar
        return None


def as_text(value: Any) -> str:
    """Return a string as it is, nothing as empty, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else _dumps(value).decode()


def content_id(value: Any) -> str:
    """Return an id made of a value that has none itself."""
    return "#" + short_hash(_dumps(value))


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(jsontext.clean(value, set()), option=orjson.OPT_SORT_KEYS)


def content_of(message: dict[str, Any]) -> Any:
    """Return what a message says; some programs write it as `parts`, as the API names it."""
    if "content" in message or "parts" not in message:
        return message.get("content")
    return message["parts"]


def parts_of(content: Any) -> list[Part]:
    """Return content in any form as a list of parts; what is no part stands under ``unknown``."""
    if type(content) is list:
        for item in content:
            if type(item) is not dict:
                return [_part_of(one) for one in content]
        return content
    if isinstance(content, str):
        return [{"text": content}]
    if isinstance(content, dict):
        return [content]
    return [] if content is None else [{"unknown": content}]


def part_at(content: Any, at: int) -> Part:
    """Return one of the parts of `content`, without a look at the others; empty for none."""
    items = content if isinstance(content, list) else parts_of(content)
    return _part_of(items[at]) if at < len(items) else {}


def _part_of(item: Any) -> Part:
    if isinstance(item, dict):
        return item
    return {"text": item} if isinstance(item, str) else {"unknown": item}


def part_kind(part: Part) -> str:
    """Name the kind of a part: call, response, text, thought, media or other."""
    # Asked of every part of every version: a look into the keys is cheaper than `get`.
    if "functionCall" in part and type(part["functionCall"]) is dict:
        return "call"
    if "functionResponse" in part and type(part["functionResponse"]) is dict:
        return "response"
    if "text" in part and type(part["text"]) is str:
        return "thought" if part.get("thought") else "text"
    if isinstance(part.get("inlineData"), dict) or isinstance(part.get("fileData"), dict):
        return "media"
    return "other"


def unknown_part(part: Part) -> str:
    """Name what a part has that is not read; empty where nothing of it says anything."""
    for key in part:
        if key not in _BESIDE:
            return type(part[key]).__name__ if key == "unknown" else key
    return "text" if "text" in part and not isinstance(part["text"], str) else ""


def plain_text(content: Any) -> str:
    """Join the text parts of `content`, thoughts left out."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in parts_of(content) if part_kind(part) == "text")


def role_of(message: dict[str, Any]) -> str:
    """Name who speaks in a message: user, model, notice, or other for what nobody knows.

    Forks rename the type of the model's messages, so what only a model can have decides, too.
    """
    kind = message.get("type")
    if kind == "gemini":
        return "model"
    if kind == "user":
        return "user"
    if isinstance(kind, str):
        if kind in MODEL_TYPES:
            return "model"
        if kind in NOTICE_TYPES:
            return "notice"
    if isinstance(message.get("toolCalls"), list) or isinstance(message.get("thoughts"), list):
        return "model"
    return "other"


def bare_call_id(call_id: str, name: str) -> str:
    """Strip the ``<name>__`` that newer clients put before a call's id; the API's id has none."""
    return call_id.removeprefix(name + "__") if name else call_id


def media_part(part: Part) -> dict[str, Any]:
    """Return an inlineData or fileData part as an image part of a block."""
    inline = part.get("inlineData")
    if isinstance(inline, dict):
        source = {"type": "base64", "data": text_of(inline.get("data"))}
        mime = inline.get("mimeType")
    else:
        file = dict_of(part.get("fileData"))
        source = {"type": "url", "data": text_of(file.get("fileUri"))}
        mime = file.get("mimeType")
    if isinstance(mime, str):
        source["mediaType"] = mime
    return {"type": "image", "source": source}


def thought_text(subject: str, description: str) -> str:
    """Write a thought as a resume does when it rebuilds it as a text part."""
    return f"**{subject}** {description}".strip() if subject else description.strip()


def split_thought(text: str) -> tuple[str, str]:
    """Undo `thought_text`: return subject and description."""
    if text.startswith("**"):
        subject, mark, description = text[2:].partition("**")
        if mark:
            return subject.strip(), description.strip()
    return "", text


def response_output(response: Any) -> Any:
    """Return what a functionResponse told the model: its output, its error, or all of it."""
    if isinstance(response, dict) and len(response) == 1:
        if "output" in response:
            return response["output"]
        if "error" in response:
            return response["error"]
    return response


def is_error_response(result: Any) -> bool:
    """Tell whether a result says that the call failed or was cancelled."""
    for part in parts_of(result):
        if "functionResponse" in part and "error" in dict_of(
            dict_of(part["functionResponse"]).get("response")
        ):
            return True
    return False


def answer_parts(content: Any, at: int) -> list[Part]:
    """Return the functionResponse at `at` and the media that follow it; empty for none.

    There may be very many in one message, so the parts before it are not looked at.
    """
    found = [part] if (part := part_at(content, at)) else []
    while found and part_kind(part := part_at(content, at + len(found))) == "media":
        found.append(part)
    return found


def own_result(result: Any, bare: str) -> Any:
    """Return the share of the call with that id in a result.

    A resume by a newer client writes the results of all parallel calls into each of them.
    """
    if not isinstance(result, list) or len(result) < 2:
        return result
    parts = parts_of(result)
    answers = [at for at, part in enumerate(parts) if part_kind(part) == "response"]
    if len(answers) > 1:
        for at in answers:
            response = parts[at]["functionResponse"]
            if bare_call_id(text_of(response.get("id")), text_of(response.get("name"))) == bare:
                return answer_parts(parts, at)
    return result


def result_output(result: Any) -> Any:
    """Return the model's view of a call's whole result: a plain value, or text and image parts."""
    parts = parts_of(result)
    if len(parts) == 1 and not dict_of(parts[0].get("functionResponse")).get("parts"):
        return part_output(parts[0])
    shown: list[Any] = []
    for part in parts:
        value = part_output(part)
        shown.append({"type": "text", "text": value} if isinstance(value, str) else value)
        nested = dict_of(part.get("functionResponse")).get("parts")
        shown += [part_output(item) for item in parts_of(nested)]
    return shown


def part_output(part: Part) -> Any:
    """Return the model's view of one part."""
    kind = part_kind(part)
    if kind == "response":
        return response_output(part["functionResponse"].get("response"))
    if kind == "text":
        return part["text"]
    if kind == "media":
        return media_part(part)
    return part["unknown"] if len(part) == 1 and "unknown" in part else part


def result_weight(result: Any) -> int:
    """Rank versions of one result: longer is richer, masked is poorest, absent is -1."""
    if result is None or result == []:
        return -1
    weight = 0
    for part in parts_of(result):
        value = part_output(part)
        if not isinstance(value, str):
            weight += 1
        elif not value.startswith(MASKED):
            weight += len(value) + 1
    return weight
