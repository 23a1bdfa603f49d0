"""Which subagent's thread answers which call, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude.shapes import text as as_text
from agentsdir.formats.reading.sink import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NO_LINK = Link("none", "none")
# How a thread may be tied to its call by an id, best first, and how sure that is.
BY_ID = (
    Link("result", "exact"),
    Link("progress", "exact"),
    Link("notification", "exact"),
    Link("trailer", "likely"),
)
# Threads that the client starts for itself, without any call: by the beginning of their ids.
_OWN = {
    "acompact-": "compaction",
    "aside_question": "side-question",
    "aprompt_suggestion": "prompt-suggestion",
}
_WARM_UP = "Warmup"
# The folder of agents that the script of a workflow started, not a call; it is named for the run.
_WORKFLOWS = "/workflows/"


class Answer(NamedTuple):
    """What a call's own result says, before anybody else is heard."""

    status: str = "pending"
    output: str | None = None
    duration: int | None = None


class Call:
    """One call of the agent tool, and what is known of its outcome."""

    __slots__ = (
        "answer", "conversation", "description", "duration", "handle", "ids", "kind", "name",
        "output", "prompt", "status", "teammate", "tool_use_id",
    )  # fmt: skip

    def __init__(self, conversation: str, tool_use_id: str, given: dict[str, Any]) -> None:
        self.conversation = conversation
        self.tool_use_id = tool_use_id
        self.name = as_text(given.get("subagent_type"))
        self.prompt = as_text(given.get("prompt"))
        self.description = as_text(given.get("description"))
        # What a person or the model calls it, which its sidecar and its messages repeat.
        self.teammate = as_text(given.get("name"))
        self.kind = ""
        self.handle = -1
        self.answer = Answer()
        self.status, self.output, self.duration = self.answer
        # Link method → agent id, as the rows about this call give it.
        self.ids: dict[str, str] = {}


class Thread:
    """One subagent's conversation, as far as its rows were read."""

    __slots__ = (
        "call", "closed", "end", "file", "link", "meta", "name", "own", "prompt", "session",
        "start", "timestamp",
    )  # fmt: skip

    def __init__(self, name: str, file: str, meta: dict[str, Any]) -> None:
        self.name = name
        self.file = file
        self.meta = meta
        self.prompt: str | None = None
        self.own = _purpose(name, file)
        self.session = ""
        self.timestamp: str | None = None
        self.start = self.end = -1
        self.closed = False
        self.call: Call | None = None
        self.link = NO_LINK


def workflow_run(file: str) -> str:
    """Return which run of a workflow the agent of `file` belongs to; empty if to none."""
    return file.rpartition(_WORKFLOWS)[2].partition("/")[0] if _WORKFLOWS in file else ""


def _purpose(name: str, file: str) -> str:
    if _WORKFLOWS in file:
        return "workflow"
    return next((why for begin, why in _OWN.items() if name.startswith(begin)), "")


def tie(threads: Sequence[Thread], calls: Sequence[Call]) -> None:
    """Tie each thread to its call, by the surest means there is for it."""
    for thread in threads:
        thread.call, thread.link, thread.own = None, NO_LINK, _purpose(thread.name, thread.file)
        _by_id(thread, calls)
    if not any(call.prompt == _WARM_UP for call in calls):
        for thread in threads:
            if thread.call is None and thread.prompt == _WARM_UP:
                thread.own = "warm-up"
    _by_text(
        threads,
        calls,
        lambda t: as_text(t.meta.get("name")),
        lambda c: c.teammate,
        Link("name", "likely"),
        Link("order", "guess"),
    )
    sure = Link("description", "likely")
    _by_text(
        threads, calls, lambda t: as_text(t.meta.get("description")), lambda c: c.description, sure
    )
    sure, guess = Link("prompt", "likely"), Link("order", "guess")
    _by_text(threads, calls, lambda t: t.prompt or "", lambda c: c.prompt, sure, guess)


def _by_id(thread: Thread, calls: Sequence[Call]) -> None:
    wanted = as_text(thread.meta.get("toolUseId"))
    for call in calls:
        if wanted and call.tool_use_id == wanted:
            thread.call, thread.link = call, Link("meta", "exact")
            return
    for how in BY_ID:
        for call in calls:
            if call.ids.get(how.method) == thread.name:
                thread.call, thread.link = call, how
                return


def _by_text(
    threads: Sequence[Thread],
    calls: Sequence[Call],
    of_thread: Callable[[Thread], str],
    of_call: Callable[[Call], str],
    sure: Link,
    guess: Link | None = None,
) -> None:
    """Tie what is left by a text that both sides have.

    `sure` is for a text that one thread and one call have; with several, calls and threads
    stand in the order in which they began, and `guess`, if given, says so.
    """
    taken = {id(thread.call) for thread in threads if thread.call}
    open_threads: dict[str, list[Thread]] = {}
    for thread in threads:
        if thread.call is None and not thread.own:
            open_threads.setdefault(of_thread(thread), []).append(thread)
    open_calls: dict[str, list[Call]] = {}
    for call in calls:
        # A call whose agent is known by id belongs to that agent, read or not.
        if id(call) not in taken and not call.ids:
            open_calls.setdefault(of_call(call), []).append(call)
    open_threads.pop("", None)
    for text, rivals in open_threads.items():
        same = open_calls.get(text, [])
        how = sure if len(same) == len(rivals) == 1 else guess
        if how is not None:
            for thread, call in zip(rivals, same, strict=False):
                thread.call, thread.link = call, how
