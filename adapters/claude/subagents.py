"""Subagents of a session: their calls, their threads, and which thread answers which call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude.shapes import agent_id, count, mapping, part_text, parts
from agentsdir.adapters.claude.shapes import text as as_text
from agentsdir.adapters.claude.speakers import Notice
from agentsdir.formats.blocks import MAIN, make_block
from agentsdir.formats.findings import Finding
from agentsdir.formats.jsontext import packed, unpacked
from agentsdir.formats.sink import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from agentsdir.adapters.claude.emit import RowContext
    from agentsdir.formats.sink import BlockSink


NO_LINK = Link("none", "none")
# How a thread may be tied to its call by an id, best first, and how sure that is.
BY_ID = (
    Link("result", "exact"),
    Link("progress", "exact"),
    Link("notification", "exact"),
    Link("trailer", "likely"),
)
# Threads that the client starts itself, without a call: by the beginning of their ids.
_OWN = {
    "acompact-": "compaction",
    "aside_question": "side-question",
    "aprompt_suggestion": "prompt-suggestion",
}
_WARM_UP = "Warmup"
# The folder of agents that the script of a workflow started; below it is a folder for each run.
_WORKFLOWS = "/workflows/"


# What a snapshot keeps; the blocks are out of reach then, and so is what only they show.
_KEPT_OF_CALL = (
    "file",
    "conversation",
    "tool_use_id",
    "name",
    "prompt",
    "description",
    "teammate",
    "kind",
    "ids",
)
_KEPT_OF_THREAD = ("name", "file", "meta", "prompt", "session", "timestamp", "closed")


class CallResult(NamedTuple):
    """The outcome of a call by its own result, without what notices say."""

    status: str = "pending"
    output: str | None = None
    duration: int | None = None


class AgentCall:
    """One call of the agent tool, and what is known of its outcome."""

    __slots__ = (
        "answer", "conversation", "description", "duration", "file", "handle", "ids", "kind",
        "name", "output", "prompt", "status", "teammate", "tool_use_id",
    )  # fmt: skip

    def __init__(
        self, file: str, conversation: str, tool_use_id: str, given: dict[str, Any]
    ) -> None:
        self.file = file
        self.conversation = conversation
        self.tool_use_id = tool_use_id
        self.name = as_text(given.get("subagent_type"))
        self.prompt = as_text(given.get("prompt"))
        self.description = as_text(given.get("description"))
        # The name given by a person or the model, which its sidecar and its messages repeat.
        self.teammate = as_text(given.get("name"))
        self.kind = ""
        self.handle = -1
        self.answer = CallResult()
        self.status, self.output, self.duration = self.answer
        # Link method → agent id, from the rows about this call.
        self.ids: dict[str, str] = {}


class SubagentThread:
    """One subagent's conversation, by the rows so far."""

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
        self.call: AgentCall | None = None
        self.link = NO_LINK


def workflow_run(file: str) -> str:
    """Return the run of a workflow that the agent of `file` belongs to; empty for none."""
    return file.rpartition(_WORKFLOWS)[2].partition("/")[0] if _WORKFLOWS in file else ""


def _purpose(name: str, file: str) -> str:
    if _WORKFLOWS in file:
        return "workflow"
    return next((why for begin, why in _OWN.items() if name.startswith(begin)), "")


def link_threads(threads: Sequence[SubagentThread], calls: Sequence[AgentCall]) -> None:
    """Link each thread to its call, by the surest method that applies."""
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


def _by_id(thread: SubagentThread, calls: Sequence[AgentCall]) -> None:
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
    threads: Sequence[SubagentThread],
    calls: Sequence[AgentCall],
    of_thread: Callable[[SubagentThread], str],
    of_call: Callable[[AgentCall], str],
    sure: Link,
    guess: Link | None = None,
) -> None:
    """Link the remaining threads and calls by a text that both have.

    `sure` is the link for a text of one thread and one call. With several, they are linked in the
    order in which they began, by `guess` if it is given.
    """
    taken = {id(thread.call) for thread in threads if thread.call}
    open_threads: dict[str, list[SubagentThread]] = {}
    for thread in threads:
        if thread.call is None and not thread.own:
            open_threads.setdefault(of_thread(thread), []).append(thread)
    open_calls: dict[str, list[AgentCall]] = {}
    for call in calls:
        # A call with a known agent id belongs to that agent, whether its file was read or not.
        if id(call) not in taken and not call.ids:
            open_calls.setdefault(of_call(call), []).append(call)
    open_threads.pop("", None)
    for text, rivals in open_threads.items():
        same = open_calls.get(text, [])
        how = sure if len(same) == len(rivals) == 1 else guess
        if how is not None:
            for thread, call in zip(rivals, same, strict=False):
                thread.call, thread.link = call, how


TOOLS = frozenset({"Task", "Agent"})
_TRAILER = re.compile(r"agentId: ([A-Za-z0-9_-]+)")
_RESULT_STATUS = {
    "completed": "success",
    "async_launched": "running",
    "remote_launched": "running",
    "teammate_spawned": "running",
}
_NOTICE_STATUS = {"completed": "success", "failed": "error", "killed": "error", "stopped": "error"}
_ENDINGS = {
    "success": "completed",
    "error": "failed",
    "running": "was still running",
    "pending": "did not report back",
}


class Subagents:
    """All calls and threads of one session, and the links between them."""

    def __init__(self, sink: BlockSink) -> None:
        self._sink = sink
        self.threads: dict[str, SubagentThread] = {}
        # Whether something changed since the last `state`.
        self.changed = False
        # The rows of the main transcript, and the file of each row of a subagent's, by the uuid's
        # `stand_in`.
        self.main_rows: Collection[int] = ()
        self.rows: dict[int, str] = {}
        # Whether the main transcript had a row after a subagent's file that copied it.
        self.copied_early = False
        # The file whose rows are read, which is kept with what they say (`arrange`).
        self.file = ""
        self._calls: dict[tuple[str, str], AgentCall] = {}
        self._all: list[AgentCall] = []
        # A file, a run of a workflow, the conversation and the id of the call that started it.
        self._started: list[tuple[str, str, str, str]] = []
        # A file, the method, and tool use id → agent id, from rows that name both and stand before
        # or after the call.
        self._named: list[tuple[str, str, str, str]] = []
        self._notices: list[tuple[str, Notice]] = []

    def is_copy(self, key: int, file: str) -> bool:
        """Tell whether a row of a subagent's file is also in another file of the session."""
        return key in self.main_rows or self.rows.setdefault(key, file) != file

    def opened(self, context: RowContext, tool_use_id: str, given: dict[str, Any]) -> AgentCall:
        """Note a call of the agent tool; the caller sets its handle."""
        self.changed = True
        call = AgentCall(self.file, context.conversation, tool_use_id, given)
        self._calls[context.conversation, tool_use_id] = call
        self._all.append(call)
        return call

    def result(
        self, conversation: str, tool_use_id: str, content: Any, error: bool, native: Any
    ) -> bool:
        """Take the result of an agent call; return False for the result of another call."""
        call = self._calls.get((conversation, tool_use_id))
        if call is None:
            if type(native) is dict and "runId" in native:
                run = as_text(native["runId"])
                self._started.append((self.file, run, conversation, tool_use_id))
                self.changed = True
            return False
        self.changed = True
        details = mapping(native)
        # A remote agent has a task id, and no transcript here.
        found = agent_id(details.get("agentId") or details.get("taskId"))
        if found:
            call.ids["result"] = found
        texts = [piece for piece in map(part_text, parts(content)) if piece is not None]
        trailer = _TRAILER.search(texts[-1]) if texts else None
        if trailer:
            call.ids["trailer"] = trailer[1]
            if len(texts) > 1:  # a note of the client to the model, after the answer
                texts.pop()
        call.kind = as_text(details.get("agentType"))
        status = _RESULT_STATUS.get(as_text(details.get("status")), "success")
        if error or status != "running":
            spent = count(details.get("totalDurationMs")) or None
            call.answer = CallResult("error" if error else status, "\n".join(texts), spent)
        else:
            call.answer = CallResult(status, call.answer.output, call.answer.duration)
        return True

    def names(self, method: str, tool_use_id: Any, agent: Any) -> None:
        """Note the agent of a call, from a row that names both."""
        found = agent_id(agent)
        if found and isinstance(tool_use_id, str):
            self.changed = True
            self._named.append((self.file, method, tool_use_id, found))

    def notified(self, notice: Notice) -> None:
        """Note how a background agent ended."""
        self.names("notification", notice.tool_use_id, notice.task_id)
        self.changed = True
        self._notices.append((self.file, notice))

    def open(
        self, name: str, context: RowContext, file: str, meta: dict[str, Any]
    ) -> SubagentThread:
        """Return the thread `name`; its first row opens it with a block."""
        thread = self.threads.get(name)
        if thread is None:
            self.changed = True
            thread = self.threads[name] = SubagentThread(name, file, meta)
            thread.session = context.session
            thread.start = self._mark(thread, "start", "session_start", context.timestamp)
        if context.timestamp is not None:
            thread.timestamp = context.timestamp
        return thread

    def close(self, file: str) -> None:
        """End the open threads of `file`."""
        for thread in self.threads.values():
            if not thread.closed and thread.file == file:
                thread.closed = self.changed = True
                thread.end = self._mark(thread, "end", "session_end", thread.timestamp)

    def _mark(self, thread: SubagentThread, word: str, subtype: str, timestamp: str | None) -> int:
        nowhere = {"file": thread.file, "line": None, "offset": None, "length": None}
        return self._sink.add(
            make_block(
                "system",
                f"{thread.name}:{word}",
                thread.name,
                thread.session,
                timestamp,
                nowhere,  # type: ignore[arg-type]
                subtype=subtype,
            )
        )

    def snapshot(self) -> dict[str, Any]:
        """Return as JSON what is known of the calls and threads so far, but their outputs."""
        return {
            "calls": [
                {name: getattr(call, name) for name in _KEPT_OF_CALL}
                | {"status": call.answer.status}
                for call in self._all
            ],
            "threads": [
                {name: getattr(thread, name) for name in _KEPT_OF_THREAD}
                for thread in self.threads.values()
            ],
            "started": self._started,
            "named": self._named,
            "notices": [[file, [*notice]] for file, notice in self._notices],
            "rows": packed("q", self.rows),
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the calls and threads of a snapshot, whose blocks are not here.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none.
        """
        for kept in snapshot["calls"]:
            call = AgentCall(kept["file"], kept["conversation"], kept["tool_use_id"], {})
            for name in _KEPT_OF_CALL:
                setattr(call, name, kept[name])
            call.answer = CallResult(kept["status"])
            self._all.append(call)
            self._calls[call.conversation, call.tool_use_id] = call
        for kept in snapshot["threads"]:
            thread = SubagentThread(kept["name"], kept["file"], kept["meta"])
            for name in _KEPT_OF_THREAD:
                setattr(thread, name, kept[name])
            self.threads[thread.name] = thread
        self._started = [
            (file, run, thread, call) for file, run, thread, call in snapshot["started"]
        ]
        self._named = [(file, how, call, agent) for file, how, call, agent in snapshot["named"]]
        self._notices = [(file, Notice(*notice)) for file, notice in snapshot["notices"]]
        self.rows = dict.fromkeys(unpacked("q", snapshot["rows"]), "")

    def arrange(self, files: Sequence[str]) -> None:
        """Put what was read in the order of the files, by their names."""
        order = {file: number for number, file in enumerate(files)}
        self._all.sort(key=lambda call: order[call.file])
        threads = sorted(self.threads.values(), key=lambda thread: order[thread.file])
        self.threads = {thread.name: thread for thread in threads}
        self._started.sort(key=lambda entry: order[entry[0]])
        self._named.sort(key=lambda entry: order[entry[0]])
        self._notices.sort(key=lambda entry: order[entry[0]])

    def state(self) -> None:
        """Link threads and calls, and state what is known about both.

        While a session is tailed, this is repeated: a later row may replace a guess.
        """
        if not self.changed:
            return
        self.changed = False
        self._spread()
        runs: dict[str, tuple[str, str]] = {}
        for _, run, conversation, tool_use_id in self._started:
            runs.setdefault(run, (conversation, tool_use_id))
        link_threads(list(self.threads.values()), self._all)
        for thread in self.threads.values():
            self._state_thread(thread, runs)
        linked = {id(thread.call): thread for thread in self.threads.values() if thread.call}
        for call in self._all:
            self._state_call(call, linked.get(id(call)))

    def report(self) -> None:
        """Report the threads that have no call."""
        for thread in self.threads.values():
            if thread.call is None and not thread.own and MAIN in self._sink.conversations:
                message = f"subagent {thread.name} answers no call in this session"
                self._sink.finding(Finding("orphan-subagent", thread.file, message))

    def _spread(self) -> None:
        """Apply to each call what other rows say about it."""
        by_tool = {call.tool_use_id: call for call in self._all}
        for call in self._all:
            call.status, call.output, call.duration = call.answer
        for _, method, tool_use_id, agent in self._named:
            if tool_use_id in by_tool:
                by_tool[tool_use_id].ids.setdefault(method, agent)
        by_agent = {agent: call for call in self._all for agent in call.ids.values()}
        by_name = {call.teammate: call for call in self._all if call.teammate}
        # A call with its own result is over, whatever a notice says about its task.
        unfinished = {id(call) for call in self._all if call.status in ("pending", "running")}
        for _, notice in self._notices:
            target = (
                by_tool.get(notice.tool_use_id)
                or by_agent.get(notice.task_id)
                or by_name.get(notice.task_id)
            )
            status = _NOTICE_STATUS.get(notice.status)
            if target is not None and status is not None and id(target) in unfinished:
                target.status = status
                target.output = notice.result or target.output or notice.summary or None
                target.duration = notice.duration or target.duration

    def _state_thread(self, thread: SubagentThread, runs: dict[str, tuple[str, str]]) -> None:
        call = thread.call
        parent = call.conversation if call else agent_id(thread.meta.get("parentAgentId"))
        started_by = ""
        if thread.own and call is None:
            thread.link = Link(thread.own, "none")
            run = runs.get(workflow_run(thread.file))
            if run is not None:
                parent, started_by = run
                thread.link = Link(thread.own, "exact")
        main = MAIN in self._sink.conversations
        self._sink.conversation(
            thread.name, parent=parent or (MAIN if main else None), link=thread.link
        )
        kind = as_text(thread.meta.get("agentType")) or (call.name or call.kind if call else "")
        who = f"Subagent {kind}" if kind else "Subagent"
        metadata = {"agentType": kind} if kind else {}
        if thread.own:
            metadata["purpose"] = thread.own
        if started_by:
            metadata["toolUseId"] = started_by
        self._sink.amend(thread.start, message=f"{who} started", metadata=metadata)
        if call is None:
            self._sink.amend(thread.end, message=f"{who} ended", metadata=metadata)
        else:
            ending = f"{who} {_ENDINGS[call.status]}"
            self._sink.amend(
                thread.end, message=ending, metadata={**metadata, "status": call.status}
            )

    def _state_call(self, call: AgentCall, thread: SubagentThread | None) -> None:
        link = thread.link if thread else NO_LINK
        agent = thread.name if thread else None
        if agent is None:
            for candidate in BY_ID:
                if candidate.method in call.ids:
                    agent, link = call.ids[candidate.method], candidate
                    break
        late: dict[str, Any] = {"subagentId": agent, "status": call.status}
        kind = call.kind or (as_text(thread.meta.get("agentType")) if thread else "")
        if not call.name and kind:
            late["name"] = kind
        if call.output is not None:
            late["output"] = call.output
        if call.duration is not None:
            late["durationMs"] = call.duration
        late["link"] = link._asdict()
        self._sink.amend(call.handle, **late)
