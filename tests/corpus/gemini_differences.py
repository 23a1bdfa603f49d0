"""What Gemini CLI itself says on stdout and in its files differently: the table, as data.

docs/clients/gemini.md, "Stream and file", holds the same rows; nothing else is tolerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.blocks import Block

MAIN = "main"
CALLS = ("tool_use", "subagent")
# What is compared: id, type, content, pairing and conversation (D21).
COMPARED = (
    "type", "id", "conversationId", "messageId", "content", "summary", "model", "toolName",
    "toolUseId", "input", "status", "output", "isError", "subtype", "message", "metadata",
    "subagentId", "name", "superseded", "lossy",
)  # fmt: skip


class Difference(NamedTuple):
    """One thing that stdout and the file do not say alike of a run.

    `side` is "stdout" or "file" where only that one has the block, "both" where `field` differs,
    and "order" where blocks of the type `field` stand elsewhere. `is_spawn` tells whether the block
    is a call that ran a subagent, or the result of one.
    """

    version: str
    side: str
    block: Block
    field: str = ""
    is_spawn: bool = False

    @property
    def kind(self) -> str:
        """The type of the block."""
        found: str = self.block["type"]
        return found

    def only(self, side: str, *kinds: str) -> bool:
        """Tell whether it is a block of the main thread that only one side has."""
        here = self.block["conversationId"] == MAIN and not self.is_spawn
        return here and self.side == side and self.kind in kinds

    def differs(self, *fields: str) -> bool:
        """Tell whether both have the block, and one of these fields is not the same."""
        return self.side == "both" and self.field in fields


class Rule(NamedTuple):
    """One row of the table, and how it is recognised.

    `stays` tells whether the difference is still there when both are joined.
    """

    id: str
    what: str
    where: str
    stays: bool
    versions: str
    why: str
    fits: Callable[[Difference], bool]

    @property
    def joined(self) -> str:
        """What joining does of it, as the table says it."""
        return "stays" if self.stays else "gone"


def _is_end(one: Difference) -> bool:
    ends = ("session_start", "session_end")
    return one.only("stdout", "system") and one.block["subtype"] in ends


RULES = (
    Rule(
        "ids", "the id of a block", "both", False, "0.29.0 0.61.0",
        "no line has the id of a message", lambda one: one.differs("id", "messageId"),
    ),
    Rule(
        "model", "the model that answered", "both", False, "0.29.0 0.61.0",
        "`init` has the one that was asked for", lambda one: one.differs("model"),
    ),
    Rule(
        "thinking", "thoughts", "file", False, "0.29.0 0.61.0",
        "stdout has none", lambda one: one.only("file", "thinking"),
    ),
    Rule(
        "input", "paths in the input of a call", "both", False, "0.29.0",
        "the tool makes them whole before it runs",
        lambda one: one.differs("input") and one.kind == "tool_use",
    ),
    Rule(
        "output", "the output of a call", "both", False, "0.29.0 0.61.0",
        "stdout has what was displayed, if that was text",
        lambda one: one.differs("output") and one.kind == "tool_result",
    ),
    Rule(
        "spelling", "an answer's control sequences and unseen characters", "both", False,
        "0.29.0 0.61.0", "each leaves out some",
        lambda one: one.differs("content") and one.kind == "assistant_text",
    ),
    Rule(
        "agent", "a call that ran a subagent", "both", False, "0.61.0",
        "on stdout it is a call like any other", lambda one: one.side == "both" and one.is_spawn,
    ),
    Rule(
        "agent-result", "the result of such a call", "stdout", False, "0.61.0",
        "in the file the call has it",
        lambda one: one.side == "stdout" and one.kind == "tool_result" and one.is_spawn,
    ),
    Rule(
        "agent-thread", "what a subagent says and does", "file", False, "0.61.0",
        "stdout has none of it",
        lambda one: one.side == "file" and one.block["conversationId"] != MAIN,
    ),
    Rule(
        "taken-back", "`superseded` of the prompt of a turn that failed", "both", False, "0.61.0",
        "the client takes it out of its history",
        lambda one: one.differs("superseded") and one.kind == "user_message",
    ),
    Rule(
        "ends", "`session_start` and `session_end`", "stdout", False, "0.29.0 0.61.0",
        "`init` and `result` are no rows", _is_end,
    ),
    Rule(
        "failure", "why a turn failed", "stdout", True, "0.29.0 0.61.0",
        "neither an `error` line nor a `result` is a row",
        lambda one: one.only("stdout", "system") and one.block["subtype"] == "error",
    ),
    Rule(
        "lost-text", "an answer that broke off", "stdout", True, "0.61.0",
        "a message is written when it ends", lambda one: one.only("stdout", "assistant_text"),
    ),
    Rule(
        "lost-call", "calls that were running when the client was ended", "stdout", True,
        "0.29.0 0.61.0", "calls are written when they and those beside them have ended",
        lambda one: one.only("stdout", "tool_use") and one.block["status"] == "pending",
    ),
    Rule(
        "late-thinking", "the place of a thought", "order", True, "0.29.0 0.61.0",
        "it is known when its answer, which was heard before, is written",
        lambda one: (one.side, one.field) == ("order", "thinking"),
    ),
    Rule(
        "late-result", "the place of a result", "order", True, "0.29.0 0.61.0",
        "calls are heard of before they have ended, and those beside them, too",
        lambda one: (one.side, one.field) == ("order", "tool_result"),
    ),
)  # fmt: skip


def rule_for(one: Difference, *, joined: bool) -> Rule | None:
    """Return the row that a difference falls under, if any."""
    return next((rule for rule in RULES if rule.fits(one) and (rule.stays or not joined)), None)


def differences(version: str, stream: list[Block], file: list[Block]) -> list[Difference]:
    """Return every difference between two tellings of one run, blocks paired by id."""
    told = {(block["conversationId"], block["id"]): block for block in stream}
    there = {(block["conversationId"], block["id"]): block for block in file}
    spawns = {block["toolUseId"] for block in file if block["type"] == "subagent"}
    found = []
    for key, block in there.items():
        if key not in told:
            found.append(Difference(version, "file", block, is_spawn=_is_of(spawns, block)))
            continue
        is_spawn = block["type"] == "subagent"
        found += [
            Difference(version, "both", block, field, is_spawn)
            for field in COMPARED
            if (told[key].get(field) or None) != (block.get(field) or None)
        ]
    found += [
        Difference(version, "stdout", block, is_spawn=_is_of(spawns, block))
        for key, block in told.items()
        if key not in there
    ]
    for thread in {block["conversationId"] for block in file}:
        found += _moved(
            version,
            [there[key] for key in there if key in told and key[0] == thread],
            [there[key] for key in told if key in there and key[0] == thread],
        )
    return found


def _is_of(spawns: set[str], block: Block) -> bool:
    return block["type"] == "tool_result" and block["toolUseId"] in spawns


def _moved(version: str, there: list[Block], told: list[Block]) -> list[Difference]:
    """Name the types whose blocks stand elsewhere; the others must be in order without them."""
    moved = []
    for kind in ("thinking", "tool_result", "any"):
        if there == told:
            break
        moved.append(Difference(version, "order", there[0], kind))
        there = [block for block in there if block["type"] != kind]
        told = [block for block in told if block["type"] != kind]
    return moved


def named_alike(stream: list[Block], file: list[Block]) -> tuple[list[Block], list[Difference]]:
    """Give the blocks of stdout alone the ids that the file has for them, by call and by order."""
    found: list[Difference] = []
    made: list[Block] = []
    free = [block for block in file if block["conversationId"] == MAIN]
    for block in stream:
        twin = next((other for other in free if _are_one(block, other)), None)
        if twin is not None:
            free.remove(twin)
            found.append(Difference("", "both", twin, "id"))
            block = {**block, "id": twin["id"]}
        made.append(block)
    return made, found


def _are_one(block: Block, other: Block) -> bool:
    if block["type"] == "tool_use" and other["type"] in CALLS:
        return bool(block["toolUseId"] == other["toolUseId"])
    if block["type"] == other["type"] == "tool_result":
        return bool(block["toolUseId"] == other["toolUseId"])
    return block["type"] == other["type"] and block["type"] in ("user_message", "assistant_text")
