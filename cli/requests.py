"""One request of the line protocol: what a line asks for, and the agents that it names.

See docs/protocol.md, "Requests", and the schema `protocol-request`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import orjson

from agentsdir.cli.command_line import COMMANDS, command_of
from agentsdir.cli.naming import LAST
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.command_line import ReadCommand

Id: TypeAlias = "str | int | None"
"""What a client calls a request; None for a line of which no id can be read."""

ANSWER = "answer"
"""The verb that answers a question."""
CANCEL = "cancel"
"""The verb that ends another request."""
QUEUE = "queue"
"""The verb that adds to an inbox, in the order of the requests."""
OWN_VERBS = (ANSWER, CANCEL)
"""Verbs that are no commands: the process of the protocol does them itself."""
REFUSED = ("chat",)
URGENT = frozenset({"interrupt", "clear-abort", "close", QUEUE})
"""Verbs for agents that work, which wait for no other request and take no time."""
AT_ONCE = frozenset({*URGENT, "wait", *OWN_VERBS})
"""Verbs that wait for no other request."""
Lane: TypeAlias = Literal["urgent", "beside", "in order"]
"""Requests of one lane hold up those of no other, however many they are."""
LANES: tuple[Lane, ...] = ("urgent", "beside", "in order")

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of a request; a longer prompt is in a file that the request names."""
ID_LIMIT = 256
"""Characters of an id, which each object of the answer repeats."""
_OPTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Parameters of `send` that name the agent by its key, in place of its first argument.
_KEYS = ("cron", "heartbeat", "connector", "user", "channel")


class BadRequest(UsageError):
    """A line that is no request. `request_id` is None where no id can be read."""

    def __init__(
        self, message: str, request_id: Id = None, *, hint: str | None = None, kind: str = ""
    ) -> None:
        super().__init__(message, hint=hint, kind=kind or "bad-request")
        self.request_id = request_id


class ClientTerminal(NamedTuple):
    """The terminal that a client shows text on: its width, and whether colours are wanted."""

    columns: int = 80
    color: bool = False


class Request(NamedTuple):
    """One request.

    Attributes:
        args: the operands; none of them is taken for an option.
        options: by their long names without dashes.
        words: the command line as typed, after the verb, in place of `args` and `options`.
        stdin: the text on standard input; None for an empty one.
        cwd: the working directory, relative to that of the protocol's process.
        beside: whether it waits for no earlier request.
        terminal: given where text for people is wanted in place of JSON.
    """

    id: Id
    verb: str
    args: tuple[str | int, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012, never changed
    words: tuple[str, ...] | None = None
    stdin: str | None = None
    cwd: str = ""
    beside: bool = False
    terminal: ClientTerminal | None = None

    @property
    def is_at_once(self) -> bool:
        """Whether it waits for no earlier request."""
        return self.beside or self.verb in AT_ONCE

    @property
    def lane(self) -> Lane:
        """With which requests it is counted, where only so many are done at once."""
        if self.verb in URGENT:
            return "urgent"
        return "beside" if self.is_at_once else "in order"

    def command_line(self) -> list[str]:
        """Return the command line that does what is asked."""
        json = self.terminal is None and _takes_json(self.verb)
        if self.words is not None:
            given = ["--json"] if json and not _has_option(self.words, "--json") else []
            return [self.verb, *given, *self.words]
        options = {"json": True, **self.options} if json else self.options
        return [self.verb, *_option_words(options), "--", *map(str, self.args)]


def agents_named(command: ReadCommand) -> Iterator[str]:
    """Yield what names the agents that a command is about, in the words of a command line.

    A key, such as that of a cron task, is yielded as one text that names no agent. So is the name
    of an agent that may be made.
    """
    values = command.values
    if values.get("name"):
        yield str(values["name"])
    keys = [f"{name} {values[name]}" for name in _KEYS if values.get(name)]
    if values.get("last"):
        yield LAST
    elif values.get("to"):
        yield str(values["to"])
    elif keys:
        yield " ".join(keys)
    else:
        yield from _operands_that_name_agents(command)


def _operands_that_name_agents(command: ReadCommand) -> Iterator[str]:
    for param in command.command.params:
        metavar = str(param.metavar or "")  # as the help of the command calls it
        if param.param_type_name == "argument" and metavar.startswith(("AGENT", "[AGENT")):
            given = command.values[param.name]
            if isinstance(given, str):
                yield given
            else:
                yield from (given or ()) if metavar.endswith(("...", "…")) else (given or ())[:1]


def parse_request(line: bytes) -> Request:
    """Return the request that a line holds. Raises `BadRequest`."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the line is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the line is no JSON object")
    given = value.get("id")
    if not _is_id(given):
        raise BadRequest(
            "the request has no id",
            hint=f"an integer of up to 53 bits, or a text of up to {ID_LIMIT} characters",
        )
    try:
        request = _request(given, value)
    except UsageError as error:
        raise BadRequest(error.message, given, hint=error.hint, kind=error.kind) from error
    return request


def _is_id(given: Any) -> bool:
    if isinstance(given, str):
        return 0 < len(given) <= ID_LIMIT
    return isinstance(given, int) and not isinstance(given, bool) and abs(given) < 1 << 53


def _request(request_id: Id, value: dict[str, Any]) -> Request:
    if unknown := [name for name in value if name not in Request._fields]:
        raise UsageError(f"a request has no {unknown[0]!r}", kind="bad-request")
    verb = value.get("verb")
    if not isinstance(verb, str):
        raise UsageError("the request has no verb", kind="bad-request")
    _check_verb(verb)
    options = value.get("options", {})
    if not isinstance(options, dict):
        raise _wrong("options", "an object")
    for name, given in options.items():
        _check_option(name, given)
    words = None
    if "words" in value:
        if value.get("args") or options:
            raise UsageError("words go in place of args and options", kind="bad-request")
        if verb in OWN_VERBS:
            raise UsageError(f"{verb} takes args, and no words", kind="bad-request")
        words = _texts("words", value["words"])
    return Request(
        request_id,
        verb,
        _texts("args", value.get("args", []), numbers=True),
        options,
        words,
        _text("stdin", value["stdin"], nul=True) if "stdin" in value else None,
        _text("cwd", value.get("cwd", "")),
        _flag("beside", value.get("beside", False)),
        _terminal(value["terminal"]) if "terminal" in value else None,
    )


def _check_verb(verb: str) -> None:
    if verb in REFUSED:
        raise UsageError(f"{verb} cannot run in itself", kind="no-such-verb")
    known = [*COMMANDS, *OWN_VERBS]
    if verb not in known:
        close = get_close_matches(verb, known, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "`agentsdir --help` lists them"
        raise UsageError(f"there is no verb {verb!r}", hint=hint, kind="no-such-verb")


def _check_option(name: str, given: Any) -> None:
    if not _OPTION.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of an option",
            hint="options have their long names, without dashes before them",
            kind="bad-request",
        )
    if name == "root":
        raise UsageError("one process has one root", hint="agentsdir --root DIR chat --jsonl")
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, str):
            _text(name, one)
        elif not isinstance(one, bool | int | float):
            raise _wrong(f"option {name!r}", "text, a number, true or false, or a list of them")


def _terminal(value: Any) -> ClientTerminal:
    if not isinstance(value, dict) or not value.keys() <= {"columns", "color"}:
        raise _wrong("terminal", "an object with columns and color")
    columns = value.get("columns", 80)
    if not isinstance(columns, int) or isinstance(columns, bool) or not 1 <= columns <= 10_000:
        raise _wrong("columns", "an integer from 1 to 10000")
    return ClientTerminal(columns, _flag("color", value.get("color", False)))


def _texts(name: str, value: Any, *, numbers: bool = False) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(name, "a list")
    for one in value:
        if isinstance(one, bool) or not (
            isinstance(one, str) or (numbers and isinstance(one, int))
        ):
            raise _wrong(name, "a list of texts")
        _text(name, str(one))
    return tuple(value)


def _text(name: str, value: Any, *, nul: bool = False) -> str:
    if not isinstance(value, str):
        raise _wrong(name, "a text")
    if not nul and "\0" in value:
        raise UsageError(f"{name} holds a NUL, which no command line can", kind="bad-request")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def _wrong(name: str, form: str) -> UsageError:
    return UsageError(f"{name} of a request must be {form}", kind="bad-request")


def _option_words(options: dict[str, Any]) -> Iterator[str]:
    for name, given in options.items():
        for one in given if isinstance(given, list) else [given]:
            if one is True:
                yield f"--{name}"
            elif one is not False:
                yield f"--{name}={one}"


def _has_option(words: tuple[str, ...], option: str) -> bool:
    before = words[: words.index("--")] if "--" in words else words
    return option in before


def _takes_json(verb: str) -> bool:
    return any("--json" in param.opts for param in command_of(verb).params)
