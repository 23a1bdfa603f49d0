"""The author of a `user` row: a person, or the client (docs/clients/claude.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.adapters.claude.shapes import all_text, mapping, part_text, parts

if TYPE_CHECKING:
    from collections.abc import Iterator


# Elements such as ``<status>done</status>`` in texts that the client writes.


class MarkupElement(NamedTuple):
    """An element: its tag's `name`, the text `inside`, and where it starts and ends."""

    name: str
    inside: str
    start: int
    end: int
    opening: re.Match[str]


def elements(text: str, opening: re.Pattern[str]) -> Iterator[MarkupElement]:
    """Yield the elements of a text in order; an inner element is part of the outer one.

    The time is linear in the text, also for thousands of tags without an end.

    Args:
        text: any text.
        opening: the form of an opening tag. Its first group is the name that closes the element.
    """
    at = 0
    unclosed: set[str] = set()
    while (found := opening.search(text, at)) is not None:
        name, at = found[1], found.end()
        closing = f"</{name}>"
        close = -1 if name in unclosed else text.find(closing, at)
        if close < 0:
            unclosed.add(name)
            continue
        inside, at = text[at:close], close + len(closing)
        yield MarkupElement(name, inside, found.start(), at, found)


# Task notifications: texts in which the client reports to the model how a task ended.


class Notice(NamedTuple):
    """A task notification: how a background task ended."""

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
    """Read the reports of teammates, without the JSON by which a client says that one waits."""
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


# The author of a `user` row: a person, or the client (docs/clients/claude.md, "Who speaks").
#
# The structure decides first: the row's own fields (`isMeta`, `isCompactSummary`, `planContent`,
# `origin`, `promptSource`, `permissionMode`) and its parent row. The text decides last, and only if
# all of it has a form that this version of the client writes, since a person may type any of its
# tags. A text that only begins like such a form is a doubtful prompt.


class ClaudeSpeaker(NamedTuple):
    """The author and the kind of a `user` row's text.

    `event` is its name in metadata, empty for a person's prompt. `subtype` is that of the system
    block, `visible` whether the block shows. `doubt` is the reason why it may be no prompt.
    """

    event: str
    subtype: str = "status"
    visible: bool = True
    doubt: str = ""

    @property
    def is_person(self) -> bool:
        """Whether a person typed the row, as far as is known."""
        return not self.event


PERSON = ClaudeSpeaker("")
META = ClaudeSpeaker("meta", "log", visible=False)
INJECTED = ClaudeSpeaker("injected", "log", visible=False)
SUMMARY = ClaudeSpeaker("compact_summary")
NOTIFICATION = ClaudeSpeaker("task_notification")
INTERRUPT = ClaudeSpeaker("interrupt")
COMMAND = ClaudeSpeaker("local_command")
OUTPUT = ClaudeSpeaker("local_command_output")
PEER = ClaudeSpeaker("peer_message")

HOOK = ClaudeSpeaker("hook", "hook_response")
PLAN = ClaudeSpeaker("plan")
LOOKALIKE = ClaudeSpeaker("", doubt="it begins like a text of the client's, and goes on otherwise")
UNKNOWN_ORIGIN = ClaudeSpeaker("", doubt="its origin is of an unknown kind")

# What follows an accepted plan, with which a new session begins: the person's feedback.
FEEDBACK_ON_A_PLAN = "\n\nUser feedback on this plan: "
_PEOPLE = frozenset({"human", "channel"})
_ORIGINS = {"task-notification": NOTIFICATION, "peer": PEER, "coordinator": PEER}


def _inside(tag: str) -> str:
    """Return the pattern of an element's content: anything but the tag that closes it.

    So no pattern spans text that a person wrote between two elements.
    """
    return rf"[^<]*(?:<(?!/{tag}>)[^<]*)*"


def _element(tag: str) -> str:
    return f"<{tag}>{_inside(tag)}</{tag}>"


def _notice(tag: str) -> str:
    """Return the pattern of a notice: an element, then the file with the whole output."""
    file = r"(?:[^\n<]+\.(?:output|jsonl)|[^\s<]+)(?=[\s<]|$)"
    below = r"(?:Full transcript available at|Read the output file to retrieve the result)"
    return rf"<{tag}>\s*<{_inside(tag)}</{tag}>(?:\s*{below}: {file})?\s*"


class _Form(NamedTuple):
    """A text that the client writes: its beginning, the pattern of the whole, and its kind.

    With `repeats`, several may follow one another. `since` and `before` are the versions that write
    it in a row whose structure does not show that the client wrote it. No version does with
    `is_marked`, or without a pattern.
    """

    beginning: str
    form: str
    speaker: ClaudeSpeaker
    since: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    is_marked: bool = False
    repeats: bool = False

    def is_whole(self, text: str) -> bool:
        """Tell whether the pattern matches all of a text but white space at its ends."""
        if not self.form:
            return False
        # Matched one after the other, so that no part of the text is tried in several ways.
        pattern, at = re.compile(self.form), 0
        while (found := pattern.match(text, at)) is not None:
            at = found.end()
            if not self.repeats:
                break
        return at > 0 and not text[at:].strip()


_COMMAND_NAME = r"<command-name>[^<]*</command-name>"
_COMMAND_MESSAGE = r"<command-message>[^<]*</command-message>"
_COMMAND_REST = rf"(?:\s*{_element('command-args')})?(?:\s*<skill-format>true</skill-format>)?"
_CAVEAT = "Caveat: The messages below were generated by the user while running local commands."
_CONTINUED = "This session is being continued from a previous conversation that ran out of context."
_TEAMMATE_TAG = "teammate-message"
_FORMS = (
    _Form(
        "<command-name>",
        rf"{_COMMAND_NAME}(?:\s*{_COMMAND_MESSAGE})?{_COMMAND_REST}",
        COMMAND,
    ),
    _Form("<command-message>", rf"{_COMMAND_MESSAGE}\s*{_COMMAND_NAME}{_COMMAND_REST}", COMMAND),
    _Form("<bash-input>", _element("bash-input"), COMMAND),
    _Form("<user-memory-input>", _element("user-memory-input"), COMMAND, before=(2, 1)),
    _Form("<local-command-stdout>", _element("local-command-stdout"), OUTPUT),
    _Form("<local-command-stderr>", _element("local-command-stderr"), OUTPUT),
    _Form("<bash-stdout>", f"{_element('bash-stdout')}(?:{_element('bash-stderr')})?", OUTPUT),
    _Form("<bash-stderr>", _element("bash-stderr"), OUTPUT),
    _Form("<task-notification>", _notice("task-notification"), NOTIFICATION, (2,), repeats=True),
    _Form(
        "<agent-notification>",
        _notice("agent-notification"),
        NOTIFICATION,
        (2,),
        (2, 1),
        repeats=True,
    ),
    _Form(
        f"<{_TEAMMATE_TAG}",
        rf'<{_TEAMMATE_TAG} teammate_id="[^"]+"[^>]*>{_inside(_TEAMMATE_TAG)}</{_TEAMMATE_TAG}>\s*',
        PEER,
        since=(2, 1),
        repeats=True,
    ),
    _Form("<user-prompt-submit-hook>", _element("user-prompt-submit-hook"), HOOK, before=(2,)),
    _Form("<session-start-hook>", _element("session-start-hook"), HOOK, before=(2,)),
    # The client's text ends with a line feed, which is stripped from what a person types.
    _Form(
        "Stop hook feedback:\n",
        r"Stop hook feedback:\n- \[(?=[^\n]*\]: )(?:(?![^\n]*Stop hook feedback:)[^\n]*\n)+",
        HOOK,
        before=(2,),
    ),
    _Form(
        "[Request interrupted by user",
        r"\[Request interrupted by user(?: for tool use)?\]",
        INTERRUPT,
    ),
    _Form(_CONTINUED, rf"{re.escape(_CONTINUED)}[\s\S]*", SUMMARY, is_marked=True),
    # Their rows have `isMeta`, and newer ones `promptSource`.
    _Form(_CAVEAT, "", PERSON),
    _Form("<local-command-caveat>", "", PERSON),
    _Form("<system-reminder>", "", PERSON),
    _Form("<tick>", "", PERSON),
    _Form("<goal>", "", PERSON),
)
_FIRST = tuple(form.beginning for form in _FORMS)
# Kinds of texts in the client's queue, whose rows have neither an author nor a version.
_QUEUED = (NOTIFICATION, PEER)
# The client's answer to a command that it does not know, below its caveat.
_REFUSED_COMMAND = re.compile(
    r"Unknown (?:skill|slash command): \S+|Commands are in the form `/command \[args\]`"
)
# A notice of a background task as the clients 2.1.38 to 2.1.49 queued it.
_JSON_NOTICE = re.compile(r'\{\s*"task_id"\s*:')
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_JSON_NOTICE_SINCE, _JSON_NOTICE_BEFORE = (2, 1, 38), (2, 1, 50)
_PASTED = re.compile(
    r'\n{0,2}<pasted_content id="([0-9A-Za-z]{1,32})">\n'
    r'([^<]*(?:<(?!/?pasted_content[ >])[^<]*)*)</pasted_content(?: id="\1")?>\n{0,2}'
)
# Elements that an editor or the client puts before a prompt.
_GLUED = re.compile(r"<(ide_opened_file|ide_selection|system-reminder)>.*?</\1>\s*", re.DOTALL)
_EDITOR = "<ide_"
# A message from a channel of people, through a server of the client.
_CHANNEL = re.compile(
    r'(<channel source="[^"\n]*"[^>\n]*>\n)(' + _inside("channel") + ")</channel>"
)
# Elements around the output and input of the client's own commands.
_COMMAND_ELEMENT = re.compile(
    r"<(local-command-(?:stdout|stderr)|bash-(?:input|stdout|stderr)|user-memory-input)>"
)
_COMMAND_PART = re.compile(r"<(command-(?:name|args))>")


def speaker_of(value: dict[str, Any], text: str, caveat: str | None = None) -> ClaudeSpeaker:
    """Return the author of a `user` row whose texts, joined by line feeds, are `text`.

    `caveat` is the uuid of the last row in which the client warned of the rows below it.
    """
    get = value.get
    if get("isCompactSummary") is True:
        return SUMMARY
    origin = mapping(get("origin")).get("kind")
    # The client sets `isMeta` for a message from a channel too, and shows it.
    if get("isMeta") is True and origin != "channel":
        # Feedback of a hook is shown, since the model answers it.
        return HOOK if text.startswith("Stop hook feedback:\n") else META
    if isinstance(get("planContent"), str) and get("planContent"):
        return PLAN
    source = get("promptSource")
    if isinstance(origin, str) and origin not in _PEOPLE:
        return _ORIGINS.get(origin, UNKNOWN_ORIGIN)
    if isinstance(source, str) and source != "system":
        return PERSON
    by_text = _by_text(value, text)
    if isinstance(get("permissionMode"), str) and source is None and by_text is not NOTIFICATION:
        # The row was submitted as a prompt, which no command is.
        return PERSON
    if isinstance(origin, str):  # a person caused it; it may still be the mark-up of a command
        return by_text if by_text is COMMAND else PERSON
    if by_text.is_person and (source == "system" or get("isSynthetic") is True):
        return INJECTED
    if caveat is not None and get("parentUuid") == caveat and _REFUSED_COMMAND.fullmatch(text):
        return COMMAND  # the only trace of the command
    return by_text


def _by_text(value: dict[str, Any], text: str) -> ClaudeSpeaker:
    if text.startswith(_FIRST):
        form = next(form for form in _FORMS if text.startswith(form.beginning))
        return form.speaker if form.is_whole(text) and _writes(value, form) else LOOKALIKE
    if _JSON_NOTICE.match(text) and is_json_notice(text):
        is_of_time = _is_between(value, _JSON_NOTICE_SINCE, _JSON_NOTICE_BEFORE)
        return NOTIFICATION if is_of_time else LOOKALIKE
    return PERSON


def _writes(value: dict[str, Any], form: _Form) -> bool:
    """Tell whether the client's version writes texts of this form in such rows."""
    get = value.get
    if get("type") == "queue-operation" and form.speaker not in _QUEUED:
        return False
    pieces = parts(mapping(get("message")).get("content"))
    others = {mapping(part).get("type") for part in pieces if part_text(part) is None}
    if others and (form.speaker is not INTERRUPT or others != {"tool_result"}):
        return False  # the row has more than this text
    # Lines of stdout have no parents; a prompt among them has `isReplay`.
    is_stdout = get("type") == "user" and "parentUuid" not in value and not get("isReplay")
    if is_stdout or get("isSynthetic") is True or get("promptSource") == "system":
        return True
    return not form.is_marked and _is_between(value, form.since, form.before)


def _is_between(value: dict[str, Any], since: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Tell whether a row's version is at least `since`, and older than `before`.

    A row without a version may be of any.
    """
    found = _VERSION.match(str(value.get("version")))
    if found is None:
        return True
    version = tuple(map(int, found.groups()))
    return since <= version and (not before or version < before)


def is_caveat(text: str) -> bool:
    """Tell whether a hidden row warns the model of a command that the next row shows."""
    return text.startswith(("<local-command-caveat>", _CAVEAT))


def divide_speech(
    value: dict[str, Any],
    texts: list[str],
    caveat: str | None = None,
    *,
    is_whole: bool = False,
) -> tuple[ClaudeSpeaker, list[tuple[str, str]]]:
    """Return the author of a `user` row, and each text divided: its added beginning, and the rest.

    Args:
        value: the row.
        texts: its text parts.
        caveat: the uuid of the last row in which the client warned of the rows below it.
        is_whole: whether the row has nothing but these texts. Then all of them are a doubtful
            prompt if nothing is left without the added beginnings.
    """
    divided = [_divide(value, text) for text in texts]
    said = "\n".join([typed for _, typed in divided if typed])
    speaker = speaker_of(value, said or next((text for text in texts if text), ""), caveat)
    if is_whole and not said and speaker.is_person and any(texts):
        return LOOKALIKE, [("", text) for text in texts]
    return speaker, divided


def _divide(value: dict[str, Any], text: str) -> tuple[str, str]:
    """Return what was put before a prompt, and the prompt.

    An editor's elements always count; the client's own only in a row without an author.
    """
    at = 0
    if text.startswith("<"):
        get = value.get
        if get("type") == "queue-operation" or mapping(get("origin")).get("kind") == "channel":
            channel = _CHANNEL.fullmatch(text)
            if channel is not None:
                return channel[1], channel[2].removesuffix("\n")
        known = isinstance(get("promptSource") or get("permissionMode"), str) or get("origin")
        while match := _GLUED.match(text, at):
            if known and not text.startswith(_EDITOR, at):
                break
            at = match.end()
    typed = text[at:]
    if "<pasted_content " in typed and isinstance(value.get("promptSource"), str):
        typed = _PASTED.sub(lambda match: match[2].removesuffix("\n"), typed)
    return text[:at], typed


def command_text(text: str) -> str:
    """Return a local command as it was typed, or its output, without the client's elements."""
    found = {part.name: part.inside.strip() for part in elements(text, _COMMAND_PART)}
    if found:
        return f"{found.get('command-name', '')} {found.get('command-args', '')}".strip()
    bare, at = "", 0
    for part in elements(text, _COMMAND_ELEMENT):
        bare, at = bare + text[at : part.start] + part.inside, part.end
    return (bare + text[at:]).strip()
