"""Values of Gemini's messages: parts, texts, calls, prompts and token counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson

from agentsdir.adapters.gemini.speakers import COMMAND, SHELL, is_command, shell_lines, speaker_of
from agentsdir.formats import jsontext, times
from agentsdir.formats.blocks import usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import lasting_stand_in, short_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from agentsdir.formats.blocks import Usage


# Parts, texts, call ids and outputs, of any JSON value.
#
# A message's content is a PartListUnion: a string, a part, or a list of both. Clients of all
# versions write all forms, and a resume rewrites one as another.

# The client's status of a call → the block's.
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
# Keys beside a part's content; a part that only has a signature has no others.
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
    """Return `value` if it is a list, else a list of it."""
    return value if type(value) is list else [value]


def moment_of(timestamp: Any) -> datetime | None:
    """Return a client's timestamp as a moment; None if it is no time."""
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
    """Return an id for a value without one, made of its content."""
    return "#" + short_hash(_dumps(value))


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(jsontext.clean(value, set()), option=orjson.OPT_SORT_KEYS)


def content_of(message: dict[str, Any]) -> Any:
    """Return the content of a message; some programs use the API's name `parts`."""
    if "content" in message or "parts" not in message:
        return message.get("content")
    return message["parts"]


def parts_of(content: Any) -> list[Part]:
    """Return content in any form as a list of parts; other values are under ``unknown``."""
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
    """Return one of the parts of `content`, without reading the others; empty for none."""
    items = content if isinstance(content, list) else parts_of(content)
    return _part_of(items[at]) if at < len(items) else {}


def _part_of(item: Any) -> Part:
    if isinstance(item, dict):
        return item
    return {"text": item} if isinstance(item, str) else {"unknown": item}


def part_kind(part: Part) -> str:
    """Name the kind of a part: call, response, text, thought, media or other."""
    # `in` is cheaper than `get`, and this runs for every part of every version.
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
    """Return the kind of a part that is not read; empty for a part without content."""
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
    """Return the role of a message: user, model, notice, or other for an unknown type.

    Forks rename the type of the model's messages, so keys that only a model's message has decide
    too.
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
    """Return a call's id as the API has it, without the ``<name>__`` of newer clients."""
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
    """Return a thought as a resume writes it in a text part."""
    return f"**{subject}** {description}".strip() if subject else description.strip()


def split_thought(text: str) -> tuple[str, str]:
    """Undo `thought_text`: return subject and description."""
    if text.startswith("**"):
        subject, mark, description = text[2:].partition("**")
        if mark:
            return subject.strip(), description.strip()
    return "", text


def response_output(response: Any) -> Any:
    """Return the model's view of a functionResponse: its output, its error, or all of it."""
    if isinstance(response, dict) and len(response) == 1:
        if "output" in response:
            return response["output"]
        if "error" in response:
            return response["error"]
    return response


def lone_answer(result: Any) -> dict[str, Any] | None:
    """Return the functionResponse of a result that is nothing else (most are that), else None."""
    if type(result) is list and len(result) == 1:
        part = result[0]
        if type(part) is dict and "functionCall" not in part and "functionResponse" in part:
            answer = part["functionResponse"]
            if type(answer) is dict:
                return answer
    return None


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

    There may be very many in one message, so the parts before it are not read.
    """
    found = [part] if (part := part_at(content, at)) else []
    while found and part_kind(part := part_at(content, at + len(found))) == "media":
        found.append(part)
    return found


def own_result(result: Any, bare: str) -> Any:
    """Return the part of a result that belongs to the call with that id.

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
    return sum(output_weight(part_output(part)) for part in parts_of(result))


def output_weight(output: Any) -> int:
    """Rank versions of one part of a result."""
    if type(output) is not str:
        return 1
    return 0 if output.startswith(MASKED) else len(output) + 1


class Names:
    """Makes names unique by a number."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """Return `name`, with a number behind it if it was returned before."""
        unique = name
        while unique in self._count:
            self._count[name] += 1
            unique = f"{name}~{self._count[name]}"
        self._count[unique] = 1
        return unique


# User turns: texts that a person typed, and texts that the client added.

# The form of a text with which the client continues by itself.
_GOES_ON = "continuation"


class BlockDraft(NamedTuple):
    """A block that is not added yet: its type, its key within the message, its fields."""

    kind: str
    key: str
    fields: dict[str, Any]
    # Why it is hidden, if it is.
    reason: str = ""


def prompt_drafts(message: dict[str, Any], *, continues: bool = False) -> Iterator[BlockDraft]:
    """Yield the blocks of a user turn, without results of tools.

    Where the client keeps the typed text (``displayContent``) beside the text that it sent, the
    first is the prompt, and the second a hidden block. Where the client continues by itself
    (`continues`), nothing in the row is a prompt.
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
                yield _status(COMMAND, "p", plain_text(shown).strip())
                return
    content = _content(typed)
    if content:
        yield BlockDraft("user_message", "p", {"content": content})


def doubtful(file: str, line: int, offset: int, length: int, why: str) -> Finding:
    """Return a finding for a text that is shown as a prompt."""
    return Finding("doubtful-prompt", file, f"shown as a prompt: {why}", line, offset, length)


def _injected(text: str, number: int, reason: str) -> BlockDraft:
    fields: dict[str, Any] = {"subtype": "status", "message": text}
    if reason:
        fields["hidden"] = True
    return BlockDraft("system", f"s{number}", fields, reason)


def _shell(text: str, number: int) -> Iterator[BlockDraft]:
    """Yield a shell command that a person typed, and its output."""
    command, output = shell_lines(text)
    yield _status(COMMAND, f"s{number}", command)
    if output:
        yield _status("local_command_output", f"o{number}", output)


def _status(event: str, key: str, message: str) -> BlockDraft:
    fields = {"subtype": "status", "message": message, "metadata": {"event": event}}
    return BlockDraft("system", key, fields)


def _sent(parts: list[dict[str, Any]]) -> BlockDraft:
    fields = {
        "subtype": "log",
        "message": "the prompt as it was sent",
        "hidden": True,
        "metadata": {"rowType": "user", "row": {"content": parts}},
    }
    return BlockDraft("system", "e", fields, "prompt-as-sent")


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


# Tool calls that started a subagent, by the marks of all client versions.

INVOKE = "invoke_agent"
_DELEGATING = "Delegating to agent "
_FINISHED = "Subagent '"
_ASKED = ("prompt", "request", "objective", "question", "query")


class Spawn(NamedTuple):
    """The subagent of a call: the agent's name, its id, and when the call ended."""

    name: str
    agent_id: str | None
    ended: Any


def spawn_of(record: dict[str, Any], name: str, outputs: Iterable[Any]) -> Spawn | None:
    """Return the subagent that a tool call ran; None if it ran none.

    A call of an agent that does not exist is an ordinary failed call.

    Args:
        record: the call.
        name: its name.
        outputs: what its responses say, in order.
    """
    get = record.get
    agent_id, display, description = get("agentId"), get("resultDisplay"), get("description")
    if type(agent_id) is not str:
        agent_id = None
    if not (
        agent_id
        or (type(display) is dict and display.get("isSubagentProgress") is True)
        or (type(description) is str and description.startswith(_DELEGATING))
        or _says_so(name, outputs)
    ):
        return None
    called = text_of(dict_of(get("args")).get("agent_name"))
    shown = text_of(dict_of(display).get("agentName"))
    return Spawn(called or shown or name, agent_id, get("timestamp"))


def outputs_of(result: Any) -> list[Any]:
    """Return what the responses in a result say, in order."""
    return [
        response_output(dict_of(part.get("functionResponse")).get("response"))
        for part in parts_of(result)
    ]


def _says_so(name: str, outputs: Iterable[Any]) -> bool:
    for output in outputs:
        if type(output) is str:
            if output.startswith(_FINISHED):
                return True
            if output.startswith('Tool "') and output.startswith(f'Tool "{name}" not found'):
                return False
    return name == INVOKE


def asked_of(args: Any) -> str | None:
    """Return the task in the arguments of a call that started a subagent."""
    given = dict_of(args)
    for key in _ASKED:
        if isinstance(given.get(key), str):
            return str(given[key])
    return None


# One message over all its versions, with the row of the best version of each part.

# A row's number, and the message's index in the row's list (-1: the row is the message).
RowRef: TypeAlias = tuple[int, int]

# Stands for a mapping that nothing was put into yet; never written to.
NONE: dict[Any, Any] = {}


class FoldedCall:
    """One tool call of a message: the rows of its richest record and its richest result.

    `spot` and `answer_spot` are their place in the message: a field (``toolCalls`` or ``content``)
    and an index in it.
    """

    __slots__ = ("answer", "answer_spot", "answer_weight", "id", "place", "spawn", "spot", "weight")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.spawn = Spawn(name, None, None) if name == INVOKE else None
        self.place: RowRef = (0, -1)
        self.spot: tuple[str, int] = ("", 0)
        self.weight = -1
        self.answer: RowRef | None = None
        self.answer_spot: tuple[str, int] = ("", 0)
        self.answer_weight = -1

    def offer(self, weight: int, place: RowRef, spot: tuple[str, int]) -> bool:
        """Take a version of the call if it is richer than the best so far; return whether it is."""
        if weight > self.weight:
            self.weight, self.place, self.spot = weight, place, spot
            return True
        return False

    def offer_answer(self, weight: int, place: RowRef, spot: tuple[str, int]) -> bool:
        """Take a version of the result if it is the richest so far; return whether it is."""
        if weight > self.answer_weight:
            self.answer_weight, self.answer, self.answer_spot = weight, place, spot
            return True
        return False

    def snapshot(self) -> list[Any]:
        """Return the call as JSON, for `of`."""
        spawn = None if self.spawn is None else [*self.spawn]
        call = [self.id, spawn, self.place, self.spot, self.weight]
        return [*call, self.answer, self.answer_spot, self.answer_weight]

    @classmethod
    def of(cls, snapshot: list[Any]) -> FoldedCall:
        """Return the call of a snapshot. Raises `ValueError` or `TypeError` for what is none."""
        call_id, spawn, place, spot, weight, answer, answer_spot, answer_weight = snapshot
        call = cls(call_id, "")
        call.spawn = None if spawn is None else Spawn(*spawn)
        call.offer(weight, _pair(place), _pair(spot))
        if answer is not None:
            call.offer_answer(answer_weight, _pair(answer), _pair(answer_spot))
        return call


def _pair(values: Any) -> Any:
    first, second = values
    return first, second


class ChatMessage:
    """One message, over all its versions. Its calls are keyed by `bare_call_id`.

    `texts` has every text of any version (by hash) with its length and row, and `text` is the hash
    of the last; `thoughts` and `extras` (unknown parts) likewise. `orphans` are results without a
    call, by the call's id. `asks` is set if a person typed something, `answers` if there are
    results of calls, and `continues` if the client continues or answers by itself. `number` counts
    messages from 0.
    """

    __slots__ = ("answers", "asks", "calls", "continues", "extras", "id", "model", "number",
                 "orphans", "place", "role", "text", "texts", "thoughts", "timestamp",
                 "tokens", "usage")  # fmt: skip

    def __init__(self, message_id: str, role: str, place: RowRef, timestamp: Any) -> None:
        self.id = message_id
        self.number = 0
        self.role = role
        self.place = place
        self.timestamp = timestamp
        # Most messages have few of these, and there may be very many messages.
        self.texts: dict[int, tuple[int, RowRef]] = NONE
        self.text: int | None = None
        self.thoughts: dict[int, tuple[RowRef, str, int]] = NONE
        self.calls: dict[str, FoldedCall] = NONE
        self.extras: dict[int, tuple[RowRef, str, int]] = NONE
        self.orphans: dict[str, tuple[RowRef, int]] | None = None
        # The counts as in the row, so that equal counts are not computed again.
        self.tokens: dict[str, Any] | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.answers = False
        self.asks = False
        self.continues = False

    @property
    def is_empty(self) -> bool:
        """Whether it is a message of the model without content so far."""
        return self.role == "model" and not (self.texts or self.thoughts or self.calls)

    def says_no_more_than(self, other: ChatMessage) -> bool:
        """Tell whether the message of another file has all content of this one."""
        calls = all(
            (known := other.calls.get(bare)) is not None
            and call.weight <= known.weight
            and call.answer_weight <= known.answer_weight
            for bare, call in self.calls.items()
        )
        return (
            calls
            and self.role == other.role
            and self.texts.keys() <= other.texts.keys()
            and self.thoughts.keys() <= other.thoughts.keys()
            and self.extras.keys() <= other.extras.keys()
            and (self.orphans or {}).keys() <= (other.orphans or {}).keys()
            and (self.tokens is None or self.tokens == other.tokens)
        )

    def add_text(self, signature: int, length: int, place: RowRef) -> bool:
        """Keep the first row of a text, or a richer one; return whether something changed."""
        before, self.text = self.text, signature
        known = self.texts.get(signature)
        if known is not None and known[0] >= length:
            return before != signature
        if self.texts is NONE:
            self.texts = {}
        self.texts[signature] = (length, place)
        return True

    def add_extra(self, part: Any, place: RowRef, at: int, field: str = "content") -> bool:
        """Keep the first row of an unread part, entry `at` of `field`; return whether it is new."""
        if self.extras is NONE:
            self.extras = {}
        signature = lasting_stand_in(content_id(part))
        if signature in self.extras:
            return False
        self.extras[signature] = (place, field, at)
        return True

    def places(self) -> Iterator[RowRef]:
        """Yield the rows that blocks of the message are made from."""
        yield self.place
        for _, place in self.texts.values():
            yield place
        for place, _, _ in (*self.thoughts.values(), *self.extras.values()):
            yield place
        for call in self.calls.values():
            yield call.place
            if call.answer is not None:
                yield call.answer
        for place, _ in (self.orphans or {}).values():
            yield place

    def snapshot(self) -> list[Any]:
        """Return the message as JSON, for `of`; its number is left out."""
        return [
            *(self.id, self.role, self.place, self.timestamp, self.text, [*self.texts.items()]),
            [*self.thoughts.items()],
            [(bare, call.snapshot()) for bare, call in self.calls.items()],
            [*self.extras.items()],
            self.orphans and [*self.orphans.items()],
            *(self.tokens, self.model, self.answers, self.asks, self.continues),
        ]

    @classmethod
    def of(cls, snapshot: list[Any]) -> ChatMessage:
        """Return the message of a snapshot. Raises `ValueError` or `TypeError` for what is none."""
        message_id, role, place, timestamp, text, texts, thoughts, calls, extras, *rest = snapshot
        message = cls(message_id, role, _pair(place), timestamp)
        message.text = text
        if texts:
            message.texts = {name: (length, _pair(row)) for name, (length, row) in texts}
        if thoughts:
            message.thoughts = {name: (_pair(row), *spot) for name, (row, *spot) in thoughts}
        if calls:
            message.calls = {bare: FoldedCall.of(call) for bare, call in calls}
        if extras:
            message.extras = {name: (_pair(row), *spot) for name, (row, *spot) in extras}
        orphans, message.tokens, message.model, *flags = rest
        if orphans is not None:
            message.orphans = {bare: (_pair(row), at) for bare, (row, at) in orphans}
        if message.tokens is not None:
            message.usage = message_usage(message.tokens)
        message.answers, message.asks, message.continues = flags
        return message


# Token counts in the block format's terms (decision D9).

BELOW = 2**53
_COUNTS = ("input", "output", "cached", "thoughts", "tool", "total")


def count_of(value: Any) -> int:
    """Return a token count; anything that is none counts as 0."""
    return value if type(value) is int and 0 <= value < BELOW else 0


def message_usage(tokens: dict[str, Any]) -> Usage:
    """Return the usage of one model message.

    ``cached`` is a part of ``input``; ``output`` excludes ``thoughts``; ``tool`` (what tools put
    into the prompt) is added where the total says that ``input`` lacks it. Where the sum differs
    from ``total`` all the same, the result is not exact.
    """
    sent, got, cached, thoughts, tool, total = [
        # Without a call of `count_of`: this runs for each message.
        count if type(count) is int and 0 <= count < BELOW else 0
        for count in map(tokens.get, _COUNTS)
    ]
    known = sent + got + thoughts
    if tool and total != known:
        sent += tool
        known += tool
    cached = cached if cached < sent else sent
    exact = total == known and "total" in tokens
    return usage(sent - cached, got + thoughts, cached, 0, thoughts, exact=exact)


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the summed usage of messages; None if none has any."""
    sent = got = cached = thoughts = counted = 0
    exact = True
    for used in usages:
        if used is not None:
            counted += 1
            sent += used["inputTokens"]
            got += used["outputTokens"]
            cached += used["cacheReadTokens"]
            thoughts += used["thinkingTokens"]
            exact = exact and used["exact"]
    return usage(sent, got, cached, 0, thoughts, exact=exact) if counted else None


def stream_usage(stats: Any) -> Usage | None:
    """Return the usage that a ``result`` line of stdout reports: all models, utility calls too.

    Its ``output_tokens`` leave out thoughts, which only the total shows.
    """
    counts = dict_of(stats)
    if "total_tokens" not in counts:
        return None
    sent, got, cached, total = (
        count_of(counts.get(name))
        for name in ("input_tokens", "output_tokens", "cached", "total_tokens")
    )
    thoughts = max(0, total - sent - got)
    cached = min(cached, sent)
    return usage(sent - cached, got + thoughts, cached, 0, thoughts)


def report_usage(stats: Any) -> Usage | None:
    """Return the usage that ``--output-format json`` reports, all models summed."""
    models = dict_of(dict_of(stats).get("models"))
    counted = [dict_of(dict_of(model).get("tokens")) for model in models.values()]
    if not counted:
        return None
    prompt, got, cached, thoughts, tool = (
        sum(count_of(one.get(name)) for one in counted)
        for name in ("prompt", "candidates", "cached", "thoughts", "tool")
    )
    total = sum(count_of(one.get("total")) for one in counted)
    known = prompt + got + thoughts
    if tool and total != known:
        prompt += tool
        known += tool
    cached = min(cached, prompt)
    return usage(prompt - cached, got + thoughts, cached, 0, thoughts, exact=total == known)
