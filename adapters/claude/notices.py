"""Task notifications: the text in which the client tells the model how a task ended."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from agentsdir.adapters.claude.markup import elements
from agentsdir.adapters.claude.shapes import all_text


class Notice(NamedTuple):
    """A task notification: a background task tells how it ended."""

    task_id: str
    tool_use_id: str
    status: str
    summary: str
    result: str
    duration: int | None


_FIELD = re.compile("<(task-id|tool-use-id|status|summary|duration_ms)>")
_DURATION = re.compile(r"duration_ms: (\d{1,15})")
_TEAMMATE = re.compile(r'<(teammate-message) teammate_id="([^"<]+)"[^<>]*>')


def teammate_notices(text: str) -> list[Notice]:
    """Read what teammates report; what a client says for one (JSON, that it waits) is no report."""
    return [
        Notice(said.opening[2], "", "completed", "", said.inside.strip(), None)
        for said in elements(text, _TEAMMATE)
        if said.inside.strip() and not said.inside.strip().startswith("{")
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
    # A result may itself hold such tags, so it ends at the last closing one.
    before, _, rest = whole.partition("<result>")
    result, closed, after = rest.rpartition("</result>")
    rest, result = (before + after, result.strip()) if closed else (whole, "")
    texts: dict[str, str] = {}
    for part in elements(rest, _FIELD):
        texts.setdefault(part.name, part.inside.strip())
    duration = texts.get("duration_ms", "")
    if not duration and (match := _DURATION.search(rest)):
        duration = match[1]
    whole_number = duration.isascii() and duration.isdecimal() and len(duration) < 16
    return Notice(
        texts.get("task-id", ""),
        texts.get("tool-use-id", ""),
        texts.get("status", ""),
        texts.get("summary", ""),
        result,
        int(duration) if whole_number else None,
    )
