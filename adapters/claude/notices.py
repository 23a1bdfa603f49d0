"""Task notifications: the text in which the client tells the model how a task ended."""

from __future__ import annotations

import re

import orjson

from agentsdir.adapters.claude.shapes import all_text
from agentsdir.formats.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Notice(NamedTuple):
    """A task notification: a background task tells how it ended."""

    task_id: str
    tool_use_id: str
    status: str
    summary: str
    result: str
    duration: int | None


_FIELD = {
    name: re.compile(f"<{tag}>(.*?)</{tag}>", re.DOTALL)
    for name, tag in {
        "task_id": "task-id",
        "tool_use_id": "tool-use-id",
        "status": "status",
        "summary": "summary",
        "duration": "duration_ms",
    }.items()
}
# A result may itself hold such tags, so it ends at the last closing one.
_RESULT = re.compile("<result>(.*)</result>", re.DOTALL)
_DURATION = re.compile(r"duration_ms: (\d{1,15})")


_TEAMMATE = re.compile(
    r'<teammate-message teammate_id="([^"]+)"[^>]*>(.*?)</teammate-message>', re.S
)


def teammate_notices(text: str) -> list[Notice]:
    """Read what teammates report; what a client says for one (JSON, that it waits) is no report."""
    return [
        Notice(name, "", "completed", "", said.strip(), None)
        for name, said in _TEAMMATE.findall(text)
        if said.strip() and not said.strip().startswith("{")
    ]


# The keys of a notice that clients 2.1.38 to 2.1.49 queued as JSON; the first two are always there.
_JSON_NEEDS = frozenset({"task_id", "task_type"})
_JSON_KEYS = _JSON_NEEDS | {"tool_use_id", "description", "status", "summary", "output_file"}


def _json_notice(text: str) -> dict[str, str]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict) or not _JSON_NEEDS <= value.keys() <= _JSON_KEYS:
        return {}
    return {name: item for name, item in value.items() if isinstance(item, str)}


def is_json_notice(text: str) -> bool:
    """Tell whether a text is a task notice in JSON, and not a person's JSON."""
    return bool(_json_notice(text))


def read_notice(content: Any) -> Notice:
    """Read the text of a task notification, which is marked up with tags or is JSON."""
    whole = all_text(content)
    if whole.startswith("{") and (said := _json_notice(whole)):
        summary = said.get("summary") or said.get("description", "")
        status = said.get("status", "")
        return Notice(
            said.get("task_id", ""), said.get("tool_use_id", ""), status, summary, "", None
        )
    result = _RESULT.search(whole)
    rest = whole if result is None else whole[: result.start()] + whole[result.end() :]
    found = {name: pattern.search(rest) for name, pattern in _FIELD.items()}
    texts = {name: match[1].strip() if match else "" for name, match in found.items()}
    duration = texts.pop("duration")
    if not duration and (match := _DURATION.search(rest)):
        duration = match[1]
    whole_number = duration.isascii() and duration.isdecimal() and len(duration) < 16
    milliseconds = int(duration) if whole_number else None
    return Notice(**texts, result=result[1].strip() if result else "", duration=milliseconds)
