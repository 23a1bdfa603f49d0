"""The events of a few agents as one text that is the same whenever the same happened."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from house import House, Record

GOLDENS = Path(__file__).parent / "goldens"
NOISE = {"usage", "stop_reason", "attempt", "provider", "path", "files"}
_ID = re.compile(r"\b[0-9a-z]{24}\b")


def story(house: House) -> str:
    """Return what happened to all agents, in order; ids are numbered as they appear."""
    logs = house.logs()
    names = {agent: log[0]["data"].get("name", agent) for agent, log in logs.items()}
    numbers: dict[str, str] = {}
    records = sorted(
        (record["ts"], names[agent], record["seq"], agent, record)
        for agent, log in logs.items()
        for record in log[1:]
        if record["event"] not in ("transcript.synced", "native.changed")
    )
    lines = [f"{names[agent]}: {_told(record)}" for *_, agent, record in records]

    def numbered(found: re.Match[str]) -> str:
        if found[0] in names:
            return f"<{names[found[0]]}>"
        return numbers.setdefault(found[0], f"#{len(numbers) + 1}")

    return _ID.sub(numbered, "".join(f"{line}\n" for line in lines))


def _told(record: Record) -> str:
    event, data = record["event"], record["data"]
    if event == "session.state":
        return f"{event} {data['from']} → {data['to']} ({data['reason']})"
    if event == "block":
        block = data["block"]
        fields = {name: block[name] for name in ("status", "content", "output") if name in block}
        return f"block {block['type']} {_words(fields)}".rstrip()
    if event == "message.enqueued":
        text = "".join(part.get("text", "") for part in data["content"])
        data = {**{name: value for name, value in data.items() if name != "content"}, "text": text}
    return f"{event} {_words(data)}"


def _words(fields: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value!r}" if isinstance(value, str) and " " in value else f"{name}={value}"
        for name, value in fields.items()
        if name not in NOISE
    )


def check_golden(name: str, text: str) -> None:
    """Compare with a golden file; UPDATE_GOLDEN=1 writes it anew, for review."""
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
