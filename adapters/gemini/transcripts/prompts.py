"""User turns to pieces: what a person typed, and what the client put there itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini.transcripts.shapes import (
    content_of,
    media_part,
    part_kind,
    parts_of,
    plain_text,
)
from agentsdir.adapters.gemini.transcripts.speakers import (
    COMMAND,
    SHELL,
    is_command,
    shell_lines,
    speaker_of,
)
from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator


# The form of a text with which the client goes on by itself.
_GOES_ON = "continuation"


class Piece(NamedTuple):
    """One block to be: its type, its key within the message, its fields."""

    kind: str
    key: str
    fields: dict[str, Any]
    # Why it is hidden, if it is.
    reason: str = ""


def prompt_pieces(message: dict[str, Any], *, continues: bool = False) -> Iterator[Piece]:
    """Yield the pieces of a user turn; results of tools are not among them.

    Where the client keeps what was typed (``displayContent``) beside what it sent, the first is
    the prompt, and the second is a hidden piece. Where the client goes on by itself (`continues`),
    nothing in the row is a prompt.
    """
    parts = parts_of(content_of(message))
    kinds = [part_kind(part) for part in parts]
    answers = "response" in kinds
    typed: list[dict[str, Any]] = []
    injected = 0
    goes_on = continues
    for part, kind in zip(parts, kinds, strict=True):
        if kind in ("text", "thought"):
            text = part["text"]
            speaker = speaker_of(text, beside_result=answers)
            if speaker.form or continues:
                goes_on = goes_on or speaker.form == _GOES_ON
                if speaker.form == SHELL:
                    yield from _shell(text, injected)
                else:
                    reason = "" if speaker.shown else speaker.form or _GOES_ON
                    yield _injected(text, injected, reason)
                injected += 1
                if speaker.typed is not None:
                    typed.append({"type": "text", "text": speaker.typed})
            else:
                typed.append({"type": "text", "text": text})
        elif kind == "media" and not answers:
            typed.append(media_part(part))
    shown = message.get("displayContent")
    if shown is not None and (typed or not goes_on):
        seen = [
            media_part(part) if part_kind(part) == "media" else
            {"type": "text", "text": part["text"]}
            for part in parts_of(shown) if part_kind(part) in ("media", "text", "thought")
        ]  # fmt: skip
        if seen and seen != typed:
            if typed:
                yield _sent(typed)
            typed = seen
            if is_command(plain_text(content_of(message)), plain_text(shown)):
                yield _told(COMMAND, "p", plain_text(shown).strip())
                return
    content = _content(typed)
    if content:
        yield Piece("user_message", "p", {"content": content})


def doubtful(file: str, line: int, offset: int, length: int, why: str) -> Finding:
    """Remark on a text that is shown as a prompt."""
    return Finding("doubtful-prompt", file, line, offset, length, f"shown as a prompt: {why}")


def _injected(text: str, number: int, reason: str) -> Piece:
    fields: dict[str, Any] = {"subtype": "status", "message": text}
    if reason:
        fields["hidden"] = True
    return Piece("system", f"s{number}", fields, reason)


def _shell(text: str, number: int) -> Iterator[Piece]:
    """Yield a shell command that a person typed, and what it printed."""
    command, output = shell_lines(text)
    yield _told(COMMAND, f"s{number}", command)
    if output:
        yield _told("local_command_output", f"o{number}", output)


def _told(event: str, key: str, message: str) -> Piece:
    fields = {"subtype": "status", "message": message, "metadata": {"event": event}}
    return Piece("system", key, fields)


def _sent(parts: list[dict[str, Any]]) -> Piece:
    fields = {
        "subtype": "log",
        "message": "the prompt as it was sent",
        "hidden": True,
        "metadata": {"rowType": "user", "row": {"content": parts}},
    }
    return Piece("system", "e", fields, "prompt-as-sent")


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts
