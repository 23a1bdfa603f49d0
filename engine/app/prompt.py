"""What a session is sent: a prompt in any of the forms that a program has it in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from agentsdir.engine.inbox import as_content, text_message
from agentsdir.formats.errors import UsageError

Input: TypeAlias = str | list[str | dict[str, Any]] | Mapping[str, Any]
"""A prompt: a text, a list of text and image parts, ``{"content": …}`` or ``{"messages": […]}``."""


def content_of(given: Input) -> list[dict[str, Any]]:
    """Return a prompt as the content of one message; several messages are joined to one.

    Raises `UsageError` (kind ``bad-prompt``) for what is none.
    """
    if isinstance(given, Mapping):
        messages = given.get("messages")
        if isinstance(messages, list) and messages:
            return [part for message in messages for part in content_of(message)]
        if given.get("role", "user") != "user":
            raise _no_prompt("only a user's messages are sent")
        given = given.get("content", [])
    if isinstance(given, list):
        given = [text_message(part)[0] if isinstance(part, str) else part for part in given]
    try:
        return as_content(given)
    except ValueError as error:
        raise _no_prompt(str(error)) from None


def _no_prompt(why: str) -> UsageError:
    return UsageError(f"this is no prompt: {why}", kind="bad-prompt")
