"""Tools whose handlers run in this process (docs/behaviour.md, "Tools").

`create_tool` makes one from a JSON Schema and a handler, `tool` from a function with annotations.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections import abc
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from threading import Event

    from jsonschema_rs import Validator

_is_name = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch
_MAX_REASON = 2000
"""Characters of what is wrong with an input."""


class ToolOutput(NamedTuple):
    """What a tool call gave: a value of JSON for the model, and whether it is an error."""

    output: Any
    is_error: bool = False


class ToolContext(NamedTuple):
    """What a handler gets beside its input.

    Attributes:
        agent_id: whose turn it is.
        session_id: the session's id.
        turn_id: the turn's id, which is the execution's.
        tool_use_id: which call it is.
        spawn: makes an ephemeral child session and runs it, as `Session.spawn` does. Raises
            `UsageError` (kind ``no-spawn``) where the turn is not one of an app's session.
        emit: shows fields of the call's block, such as ``{"progress": 0.5}``, in a `block_update`
            on the live stream. They are not in the log.
        signal: set when the turn is to end; the handler has a moment to return then.
        context: what the program gave by `with_context`.
    """

    agent_id: str
    session_id: str
    turn_id: str
    tool_use_id: str
    spawn: Callable[..., Any]
    emit: Callable[[dict[str, Any]], None]
    signal: Event
    context: Mapping[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call.

    Attributes:
        name: what the model calls it.
        description: for the model.
        input_schema: a JSON Schema of the input, which is an object.
        handler: called with the input and a `ToolContext`, in a thread of its own; one that is a
            coroutine function runs in an event loop of its own. It returns a value of JSON, None,
            or a `ToolOutput`. What it raises is an error for the model.
        requires_confirmation: whether each call needs permission.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    handler: Callable[[Any, ToolContext], Any]
    requires_confirmation: bool = False

    def run(self, given: Any, context: ToolContext) -> ToolOutput:
        """Call the handler, if the input is one that the schema allows. What fails is a result."""
        if flaw := self.flaw_of(given):
            return ToolOutput(f"the input is none for {self.name}: {flaw}", is_error=True)
        try:
            return as_output(self.handler(given, context))
        except Exception as error:  # noqa: BLE001, the model is to read it
            return failed(error)

    def flaw_of(self, given: Any) -> str:
        """Return what the schema does not allow in an input; empty if it allows it."""
        try:
            found = next(self._validator.iter_errors(given), None)
        except (ValueError, OverflowError, TypeError) as error:  # what it cannot take in at all
            return str(error)[:_MAX_REASON]
        if found is None:
            return ""
        place = "/".join(map(str, found.instance_path))
        return f"{place}: {found.message}"[:_MAX_REASON] if place else found.message[:_MAX_REASON]

    @cached_property
    def _validator(self) -> Validator:
        import jsonschema_rs

        try:
            return jsonschema_rs.Draft202012Validator(dict(self.input_schema), retriever=_refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise _bad(self.name, f"its input_schema is no JSON Schema: {error}") from error


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is not in the schema, and nothing is fetched")


def failed(error: BaseException) -> ToolOutput:
    """Return what the model reads of an exception."""
    name, said = type(error).__name__, ""
    with suppress(Exception):  # of a program: it may fail at this, too
        said = str(error)
    return ToolOutput(jsontext.clean(f"{name}: {said}" if said else name, set()), is_error=True)


def as_output(value: Any) -> ToolOutput:
    """Return what a handler returned as an output. What is no value of JSON is an error."""
    value = settled(value)
    output = value if isinstance(value, ToolOutput) else ToolOutput("" if value is None else value)
    try:
        jsontext.encode(output.output)
    except (Invalid, RecursionError) as error:
        kind = type(output.output).__name__
        return ToolOutput(f"the tool returned a {kind} that is no JSON: {error}", is_error=True)
    return output._replace(is_error=bool(output.is_error))


def settled(value: Any) -> Any:
    """Return what an awaitable gives, run in an event loop of its own; any other value as it is.

    Raises `UsageError` (kind ``in-event-loop``) for an awaitable in a thread whose loop runs.
    """
    if not inspect.isawaitable(value):
        return value
    import asyncio

    with suppress(RuntimeError):  # raised where no loop runs
        asyncio.get_running_loop()
        if inspect.iscoroutine(value):
            value.close()
        raise UsageError(
            "what is a coroutine cannot be awaited by a call that an event loop waits for",
            hint="use AsyncApp, or make the call by asyncio.to_thread",
            kind="in-event-loop",
        )

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def create_tool(
    name: str,
    input_schema: Mapping[str, Any],
    handler: Callable[..., Any],
    *,
    requires_confirmation: bool = False,
    description: str = "",
) -> Tool:
    """Return a tool; its handler may also take the input alone.

    Raises `UsageError` (kind ``bad-tool``) for a name that models do not take, or what is no JSON
    Schema of an object.
    """
    if not _is_name(name):
        raise _bad(name, "a name is up to 128 letters, digits, and _ . -")
    if input_schema.get("type") != "object":
        raise _bad(name, 'its input_schema is not one of an object: {"type": "object", …}')
    made = Tool(name, description, input_schema, _with_context(handler), requires_confirmation)
    made.flaw_of({})  # a schema that is none shows now
    return made


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return tools by their names; of two with one name, the last.

    Raises `UsageError` (kind ``bad-tool``) for what is no tool, such as a plain function.
    """
    found: dict[str, Tool] = {}
    for one in tools:
        if not isinstance(one, Tool):
            raise UsageError(
                f"{one!r} is no tool",
                hint="`tool` makes one of a function, `create_tool` of a schema and a function",
                kind="bad-tool",
            )
        found[one.name] = one
    return found


def _with_context(handler: Callable[..., Any]) -> Callable[[Any, ToolContext], Any]:
    try:
        inspect.signature(handler).bind(None, None)
    except TypeError:
        return lambda given, _context: handler(given)
    except ValueError:  # a function of C does not say
        pass
    return handler


def _bad(name: str, why: str) -> UsageError:
    return UsageError(f"the tool {name!r:.140} cannot be used: {why}", kind="bad-tool")


# A tool from a function: its annotations are the schema, its docstring the descriptions.


@overload
def tool(function: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *, name: str = "", requires_confirmation: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    requires_confirmation: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, which is called with the input's fields by name.

    Annotations may be `str`, `int`, `float`, `bool`, `None`, `Any`, lists, dicts with texts as
    keys, `Literal`, unions, typed dicts, and `Annotated` with a text that describes the field. A
    parameter with a default may be left out; one that is annotated as `ToolContext` gets it. The
    docstring describes the tool, and its section ``Args:`` the fields.

    Args:
        function: what it is made of.
        name: of the tool; the function's own if it is empty.
        requires_confirmation: whether each call needs permission.

    Raises `UsageError` (kind ``bad-tool``) for other annotations.
    """
    if function is None:
        return lambda decorated: _tool_of(decorated, name, confirmed=requires_confirmation)
    return _tool_of(function, name, confirmed=requires_confirmation)


def _tool_of(function: Callable[..., Any], name: str, *, confirmed: bool) -> Tool:
    name = name or function.__name__
    described, fields = _described(inspect.getdoc(function) or "")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise _bad(name, f"its annotations cannot be read: {error}") from error
    properties: dict[str, Any] = {}
    required, takes_context = [], ""
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            takes_context = parameter.name
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _bad(name, f"its parameter {parameter.name!r} has no name that can be given")
        schema = _schema(hint, name, parameter.name)
        if parameter.name in fields:
            schema.setdefault("description", fields[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        properties[parameter.name] = schema

    def handle(given: dict[str, Any], context: ToolContext) -> Any:
        return function(**given, **({takes_context: context} if takes_context else {}))

    schema = _object(properties, required)
    return create_tool(name, schema, handle, requires_confirmation=confirmed, description=described)


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


_PLAIN: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
    list: "array",
    dict: "object",
}


def _schema(hint: Any, name: str, field: str) -> dict[str, Any]:
    """Return the JSON Schema of an annotation."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return {}
    if origin is None and isinstance(hint, type | None) and hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is typing.Annotated:
        texts = [text for text in inner[1:] if isinstance(text, str)]
        schema = _schema(inner[0], name, field)
        return {**schema, "description": texts[0]} if texts else schema
    if origin is typing.Literal:
        return {"enum": [*inner]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(one, name, field) for one in inner]}
    if origin in (list, abc.Sequence, abc.Iterable):
        return {"type": "array", "items": _schema(inner[0], name, field)}
    if origin in (dict, abc.Mapping) and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema(inner[1], name, field)}
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {key: _schema(_bare(one), name, key) for key, one in hints.items()}
        return _object(fields, [key for key, one in hints.items() if _is_required(hint, key, one)])
    raise _bad(name, f"{field!r} is annotated with {hint!r:.100}, which has no JSON Schema here")


def _is_required(owner: Any, key: str, hint: Any) -> bool:
    # Of annotations that are texts, `__required_keys__` knows no marks.
    mark = typing.get_origin(hint)
    if mark in (typing.Required, typing.NotRequired):
        return mark is typing.Required
    return key in owner.__required_keys__


def _bare(hint: Any) -> Any:
    is_marked = typing.get_origin(hint) in (typing.Required, typing.NotRequired)
    return typing.get_args(hint)[0] if is_marked else hint


_FIELD = re.compile(r"(\w+)(?: \([^)]*\))?: *(.*)")


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a tool, and of its parameters in a section ``Args:``."""
    text, _, arguments = doc.partition("\nArgs:\n")
    fields: dict[str, str] = {}
    current = ""
    for line in arguments.split("\n"):
        if line and not line.startswith(" "):
            break  # the next section
        indented = len(line) - len(line.lstrip())
        if (found := _FIELD.fullmatch(line.strip())) and indented <= 4:
            current, fields[found[1]] = found[1], found[2]
        elif current and line.strip():
            fields[current] = f"{fields[current]} {line.strip()}".strip()
    return text.strip(), fields
