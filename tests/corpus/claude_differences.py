"""What Claude Code itself says on stdout and in its files differently: the table, as data.

docs/clients/claude.md, "Stream and file", holds the same rows; nothing else is tolerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.blocks import Block

MAIN = "main"
SPEECH = frozenset({"thinking", "assistant_text"})
# What is compared: id, type, content, pairing and conversation (D21).
COMPARED = (
    "type", "id", "conversationId", "messageId", "content", "model", "redacted", "signature",
    "toolName", "toolUseId", "input", "status", "output", "isError", "subtype", "message",
    "metadata", "subagentId", "name", "description", "superseded", "lossy",
)  # fmt: skip


class Run(NamedTuple):
    """One run of the client: its version, its arguments, and whether a signal ended it."""

    version: str
    arguments: tuple[str, ...]
    broken: bool


class Difference(NamedTuple):
    """One block of which the stream and the file do not say the same.

    `side` is "stream" or "file" where only that one has the block, "both" where `fields` differ,
    and "order" where it stands elsewhere. `runs` are those that gave the stream's block, or all
    runs of the session.
    """

    side: str
    block: Block
    fields: frozenset[str]
    stream: Block | None
    runs: tuple[Run, ...]
    own_thread: bool = False

    @property
    def event(self) -> str:
        """The event that a system block tells of."""
        found: str = self.block.get("metadata", {}).get("event", "")
        return found

    @property
    def on_main(self) -> bool:
        """Whether the block stands on the main thread."""
        return bool(self.block["conversationId"] == MAIN)

    def is_event(self, side: str, *events: str) -> bool:
        """Tell whether it is a system block of the main thread that only one side has."""
        return self.side == side and self.on_main and self.event in events

    def asked(self, argument: str) -> bool:
        """Tell whether one of the runs had an argument."""
        return any(argument in run.arguments for run in self.runs)


class Rule(NamedTuple):
    """One row of the table, and how it is recognised."""

    id: str
    what: str
    where: str
    versions: str
    why: str
    fits: Callable[[Difference], bool]


def _prompt(one: Difference) -> bool:
    typed = one.block["type"] == "user_message" and one.on_main
    return one.side == "file" and typed and not one.asked("--replay-user-messages")


def _agent_text(one: Difference) -> bool:
    speech = one.block["type"] in SPEECH and not one.on_main and not one.own_thread
    return one.side == "file" and speech and not one.asked("--forward-subagent-text")


def _lost(one: Difference) -> bool:
    whole = one.block["type"] in SPEECH and not one.block.get("superseded")
    return one.side == "stream" and whole and all(run.broken for run in one.runs)


def _repair(one: Difference) -> bool:
    if one.side == "both":
        state = (one.stream or {}).get("status"), one.block.get("status")
        return one.fields <= {"status", "output"} and state == ("pending", "error")
    output: Any = one.block.get("output", "")
    made = isinstance(output, str) and output.startswith("[Tool call interrupted")
    return one.side == "file" and one.block["type"] == "tool_result" and made


RULES = (
    Rule(
        "prompt", "a prompt", "file", "1.0.128 2.0.77 2.1.98 2.1.332",
        "stdout repeats prompts only with `--replay-user-messages`", _prompt,
    ),
    Rule(
        "replay-late", "the place of a replayed prompt", "order", "2.1.98",
        "it is replayed after its answer began to stream",
        lambda one: (
            (one.side, one.fields) == ("order", {"user_message"})
            and one.asked("--replay-user-messages")
        ),
    ),
    Rule(
        "init", "`session_start` of the main thread", "stream", "1.0.128 2.0.77 2.1.98 2.1.332",
        "`init` is no row", lambda one: one.is_event("stream", "init"),
    ),
    Rule(
        "result", "the turn's end", "stream", "1.0.128 2.0.77 2.1.98 2.1.332",
        "`result` is no row", lambda one: one.is_event("stream", "result"),
    ),
    Rule(
        "retry-line", "`api_retry`", "stream", "2.1.98 2.1.332",
        "a retry is a line with an id of its own", lambda one: one.is_event("stream", "api_retry"),
    ),
    Rule(
        "retry-row", "`api_error` of a retry", "file", "2.1.332",
        "a retry is a row with an id of its own", lambda one: one.is_event("file", "api_error"),
    ),
    Rule(
        "task-line", "`task_notification`", "stream", "2.1.98 2.1.332",
        "the end of a task is a line with an id of its own",
        lambda one: one.is_event("stream", "task_notification"),
    ),
    Rule(
        "task-row", "`task_notification`", "file", "2.1.98 2.1.332",
        "the client notifies the model in a row with an id of its own",
        lambda one: one.is_event("file", "task_notification"),
    ),
    Rule(
        "command-row", "`local_command`", "file", "1.0.128 2.0.77 2.1.98 2.1.332",
        "stdout repeats no command", lambda one: one.is_event("file", "local_command"),
    ),
    Rule(
        "command-output", "the `event` of what a command printed", "both", "2.1.98",
        "stdout has it in the model's place; 2.1.332 says that it is a command's",
        lambda one: one.fields == {"metadata"} and one.is_event("both", "local_command_output"),
    ),
    Rule(
        "answer", "an answer in a turn that says nothing else", "stream", "2.1.98",
        "only `result` has it",
        lambda one: one.side == "stream"
        and one.block["type"] == "assistant_text"
        and one.block["id"].endswith(":1")
        and "messageId" not in one.block,
    ),
    Rule(
        "max-turns", "`max_turns_reached`", "file", "2.1.98 2.1.332",
        "an attachment; stdout says it in `result`",
        lambda one: one.is_event("file", "max_turns_reached"),
    ),
    Rule(
        "interrupt-line", "`interrupt`", "stream", "2.1.98",
        "not written when a signal ends the run; 2.1.332 writes it",
        lambda one: one.is_event("stream", "interrupt"),
    ),
    Rule(
        "abandoned", "superseded blocks of a message that broke off", "stream", "2.1.98 2.1.332",
        "they were seen, and the client does not go on with them",
        lambda one: one.side == "stream" and one.block.get("superseded") is True,
    ),
    Rule(
        "lost", "whole blocks of a message that did not end", "stream", "2.1.98 2.1.332",
        "a message is written when it ends, and a signal came first", _lost,
    ),
    Rule(
        "repair", "results that answer the calls of a killed run", "file", "2.1.332",
        "the next run writes them, and stdout does not repeat them", _repair,
    ),
    Rule(
        "error-details", "`errorDetails` of an API error", "both", "2.1.98",
        "stdout leaves them out",
        lambda one: one.fields == {"metadata"} and one.is_event("both", "api_error"),
    ),
    Rule(
        "compact-details", "some of a compaction's `metadata`", "both", "2.1.332",
        "stdout leaves them out",
        lambda one: one.fields == {"metadata"} and one.is_event("both", "compaction"),
    ),
    Rule(
        "agent-text", "what a subagent says and thinks", "file", "1.0.128 2.0.77 2.1.98 2.1.332",
        "stdout has it with `--forward-subagent-text`, or from the background", _agent_text,
    ),
    Rule(
        "agent-prompt", "the prompt of a subagent", "file", "1.0.128 2.1.332",
        "stdout has it of subagents in the foreground, from 2.0 on",
        lambda one: one.side == "file"
        and one.block["type"] == "user_message"
        and not one.on_main
        and not one.own_thread,
    ),
    Rule(
        "agent-name", "the id of a subagent's thread", "both", "1.0.128 2.0.77",
        "stdout does not say it, so the thread has the id of its call",
        lambda one: one.side == "both" and one.fields == {"subagentId"},
    ),
    Rule(
        "agent-ids", "the ids of a subagent's rows", "both", "1.0.128",
        "its lines have other ids than its rows",
        lambda one: one.side == "both" and one.fields == {"id"} and not one.on_main,
    ),
    Rule(
        "own-agent", "threads that the client starts for itself", "file", "2.0.77",
        "they are not on stdout", lambda one: one.side == "file" and one.own_thread,
    ),
    Rule(
        "no-persistence", "everything", "stream", "2.1.98",
        "`--no-session-persistence` writes no file",
        lambda one: one.side == "stream" and one.asked("--no-session-persistence"),
    ),
)  # fmt: skip


def rule_for(one: Difference) -> Rule | None:
    """Return the row that a difference falls under, if any."""
    return next((rule for rule in RULES if rule.fits(one)), None)
