"""Who wrote a text of a user turn: a person, or the client (SPEC.md, "Gemini: who speaks").

A text is the client's only if the whole of it has a form that a version of the client writes.
A text that only begins like one is a person's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Speaker(NamedTuple):
    """What a text is: a `form` of the client (empty: a prompt), and what a person `typed` in it.

    `shown` is whether the text gives a block without `--hidden`. `doubt` says why a prompt may be
    the client's all the same.
    """

    form: str
    typed: str | None = None
    shown: bool = False
    doubt: str = ""


PERSON = Speaker("")
LOOKALIKE = Speaker("", doubt="it begins like a text of the client's, and goes on otherwise")
# Clients before 0.28 say it without a `displayContent` when they go on by themselves.
MAY_GO_ON = Speaker("", doubt="the client says the same when it goes on by itself")
GIVEN_ANSWER = "Got it. Thanks for the additional context!"
"""The answer that the client gives itself to a snapshot of ``/compress``."""
GIVEN_THOUGHT = "Binary content received. Proceeding with analysis."
"""The thought that the client puts between a call's result and the media in it."""
SHELL = "shell-command"
COMMAND = "local_command"
"""The `event` of a block with a command that a person gave to the client."""
_FORMS = tuple(
    (form, re.compile(pattern, re.DOTALL), shown)
    for form, pattern, shown in (
        ("session-context", r"<session_context>.*</session_context>", False),
        (
            "session-context",
            r"This is the Gemini CLI\. We are setting up the context(?: for our chat)?\..*",
            False,
        ),
        # A rewind to the context puts it into the box, and what is typed stands behind it.
        (
            "rewound-context",
            (
                r"<session_context>\nThis is the Gemini CLI\..*?\n</session_context>\s*"
                r"(?P<typed>\S.*)"
            ),
            False,
        ),
        ("hook-context", r"<hook_context>.*</hook_context>", False),
        (
            "steering",
            r"User steering update:\n<user_input>\n(?P<typed>.*)\n</user_input>\n+Internal .*",
            False,
        ),
        ("hints", r"User hints:\n<user_input>\n(?P<typed>.*)\n</user_input>\n+Internal .*", False),
        ("continuation", r"System: Please continue\.", False),
        ("continuation", r"System: Potential loop detected\..*", False),
        (
            "editor-context",
            (
                r"Here is (?:the user's editor context as a JSON object|a summary of changes in "
                r"the user's editor context, in JSON format)\. This is for your "
                r"information only\.\n"
                r"```json\n.*\n```"
            ),
            False,
        ),
        (
            SHELL,
            (
                r"I ran the following shell command:\n```sh\n(?P<command>.*?)\n```\n\n"
                r"This produced the following result:\n```\n(?P<output>.*)\n```"
            ),
            True,
        ),
        (
            "directories",
            r"- \*\*Workspace Directories:\*\*\n.*\n- \*\*Directory Structure:\*\*\n.*",
            True,
        ),
        (
            "directories",
            (
                r"I'm currently working in the (?:directory: [^\n]*|following directories:\n.*)\n"
                r"Here is the folder structure of the current working directories:\n.*"
            ),
            True,
        ),
        (
            "background",
            r"Background execution update:\n<background_output>\n.*\n</background_output>.*",
            True,
        ),
        (
            "final-warning",
            (
                r"You have (?:exceeded the time limit|exceeded the maximum number of turns|stopped "
                r"calling tools without finishing)\. You have one final chance to complete the "
                r"task with a short grace period\..*"
            ),
            False,
        ),
        (
            "plan-mode",
            r"(?:User has manually exited Plan Mode|Plan approved)\. Switching to [^\n]*\.",
            False,
        ),
        ("binary", r"\[SYSTEM: Binary content \([^\n]*\) stripped from response [^\n]*\.\]", False),
        ("snapshot", r"<(state_snapshot|scratchpad)>.*</state_snapshot>", True),
    )
)
_BEGINNINGS = (
    "<", "This is the G", "User ", "System: P", "Here is ", "I ran ", "Background ", "You have ",
    "Plan approved", "[SYSTEM: B", "- **Workspace D", "Please continue.", "I'm currently w",
)  # fmt: skip
# How only the client begins a text.
_WRAPPINGS = (
    "<session_context>", "<hook_context>", "<state_snapshot>", "<scratchpad>",
    "This is the Gemini CLI. We are setting up the context",
    "User steering update:\n<user_input>", "User hints:\n<user_input>",
    "System: Please continue.", "System: Potential loop detected.",
    "Here is the user's editor context as", "Here is a summary of changes in the user's editor",
    "I ran the following shell command:\n```sh\n", "Background execution update:\n<",
    "[SYSTEM: Binary content (", "- **Workspace Directories:**\n",
)  # fmt: skip


_NAME = re.compile(r"/[A-Za-z?][\w:.-]*(?:\s|$)")
_ESCAPED = re.compile(r"\\([\\`])")
_ALL_ESCAPED = re.compile(r"(?:[^\\`]|\\[\\`])*")
# What the client says when it goes on by itself; alone, the second may be a person's.
_CONTINUATIONS = ("System: ", "Please continue.")


def speaker_of(text: str) -> Speaker:
    """Tell who wrote a text of a user turn."""
    text = text.strip()
    if not text.startswith(_BEGINNINGS):
        return PERSON
    for form, pattern, shown in _FORMS:
        found = pattern.fullmatch(text)
        if found is not None:
            typed = found.groupdict().get("typed")
            if typed is not None and form == "hints":
                typed = "\n".join(line.removeprefix("- ") for line in typed.split("\n"))
            return Speaker(form, typed, shown)
    if text == "Please continue.":
        return MAY_GO_ON
    return LOOKALIKE if text.startswith(_WRAPPINGS) else PERSON


def is_client(text: str) -> bool:
    """Tell whether a text is the client's and holds nothing that a person typed."""
    speaker = speaker_of(text)
    return bool(speaker.form) and speaker.typed is None


def shell_lines(text: str) -> tuple[str, str]:
    """Return the command of a text of the form `SHELL`, as it was typed, and what it printed."""
    for form, pattern, _ in _FORMS:
        if form == SHELL and (found := pattern.fullmatch(text.strip())):
            return _unescaped(found["command"]), _unescaped(found["output"])
    return text, ""


def _unescaped(text: str) -> str:
    """Undo the client's escapes; a text that is not escaped like that stays as it is."""
    return _ESCAPED.sub(r"\1", text) if _ALL_ESCAPED.fullmatch(text) else text


def is_command(content: str, shown: str) -> bool:
    """Tell whether a prompt was made of a command that a person typed.

    Args:
        content: the text that was sent.
        shown: the row's `displayContent` as text. A command that the client does not know is sent
            as it is.
    """
    name = shown.strip().partition(" ")[0]
    return (
        name.startswith("/")
        and not name.startswith(("//", "/*"))
        and not content.lstrip().startswith(name)
    )


def names_command(typed: str) -> bool:
    """Tell whether a text begins with the name of a command, where nothing else tells it.

    A path is none.
    """
    return _NAME.match(typed) is not None


def restates_prompt(content: Any, shown: Any, asked: Any) -> bool:
    """Tell whether the client goes on by itself, with the running prompt's `displayContent`.

    Args:
        content: the text that was sent.
        shown: the row's `displayContent` as text.
        asked: what was shown of the prompt before.
    """
    if not shown or shown != asked or content.startswith(shown):
        return False
    # A command that is typed again says the same again, whatever it is made into.
    return not is_command(content, shown) or content.startswith(_CONTINUATIONS)
