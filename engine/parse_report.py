"""The report of `parse --report`: what was read of each session, and of all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.formats.blocks import add_usage, no_usage
from agentsdir.formats.findings import Drifts, Finding
from agentsdir.formats.rows import Tally
from agentsdir.formats.sink import MessageTokens, SessionUsage

if TYPE_CHECKING:
    from agentsdir.formats.sink import ParseSink, View


class SessionReport(NamedTuple):
    """What a report needs of one parsed session; its blocks are not in it.

    `blocks` counts those of the view by type, `superseded` the replaced ones by reason.
    `conversations` are as the report shows them.
    """

    adapter: str
    name: str
    client_version: str | None
    tally: Tally
    findings: list[Finding]
    drifts: Drifts
    superseded: dict[str, int]
    blocks: dict[str, int]
    conversations: dict[str, dict[str, Any]]
    usage: SessionUsage

    @classmethod
    def of(cls, adapter: str, name: str, sink: ParseSink, view: View) -> SessionReport:
        """Return the report of a session that was read into `sink`."""
        blocks: dict[str, int] = {}
        by_conversation: dict[str, int] = {}
        for (conversation, kind), count in sink.counts(view).items():
            blocks[kind] = blocks.get(kind, 0) + count
            by_conversation[conversation] = by_conversation.get(conversation, 0) + count
        conversations = {
            conversation: {
                "blocks": by_conversation.get(conversation, 0),
                "usage": thread.usage,
                "parent": thread.parent,
                "link": thread.link._asdict() if thread.link else None,
            }
            for conversation, thread in sink.conversations.items()
        }
        return cls(
            adapter,
            name,
            sink.client_version,
            sink.tally,
            sink.findings,
            sink.drifts,
            sink.superseded_by(),
            blocks,
            conversations,
            sink.session_usage(),
        )

    def encode(self) -> bytes:
        """Return it as bytes, for another process of this machine."""
        messages = self.usage.messages
        values = [
            self.adapter,
            self.name,
            self.client_version,
            [getattr(self.tally, name) for name in Tally.__slots__],
            [list(finding) for finding in self.findings],
            self.drifts.as_json(),
            self.superseded,
            self.blocks,
            self.conversations,
            [self.usage.total, self.usage.rows, messages is not None],
        ]
        try:
            line = orjson.dumps(values)
        except TypeError:  # a file's name that is not UTF-8
            line = json.dumps(values).encode()
        return line + b"\n" + (b"" if messages is None else messages.numbers)

    @classmethod
    def decode(cls, data: bytes) -> SessionReport:
        """Return what `encode` was called of."""
        line, _, numbers = data.partition(b"\n")
        try:
            values = orjson.loads(line)
        except orjson.JSONDecodeError:
            values = json.loads(line)
        adapter, name, version, counts, findings, drifts, superseded, blocks, threads, usage = (
            values
        )
        tally = Tally()
        for field, count in zip(Tally.__slots__, counts, strict=True):
            setattr(tally, field, count)
        total, rows, apart = usage
        return cls(
            adapter,
            name,
            version,
            tally,
            [Finding(*finding) for finding in findings],
            Drifts.of_json(drifts),
            superseded,
            blocks,
            threads,
            SessionUsage(total, rows, MessageTokens(numbers) if apart else None),
        )


class ParseReport:
    """The one JSON document of `parse --report`, over any number of sessions.

    Args:
        view: which blocks are counted.
    """

    def __init__(self, view: View = "live") -> None:
        self.view = view
        self.tally = Tally()
        self.findings: list[Finding] = []
        self._adapters: set[str] = set()
        self._versions: set[str] = set()
        self._blocks: dict[str, int] = {}
        self._usage = no_usage()
        # The model messages of which the tokens are in the usage.
        self._counted: set[int] = set()
        self._superseded: dict[str, int] = {}
        self._drifts = Drifts()
        # By session: its name, and its conversations as the report shows them.
        self._sessions: list[tuple[str, dict[str, Any]]] = []

    def add_finding(self, finding: Finding) -> None:
        """Record a finding that belongs to no session."""
        self.findings.append(finding)

    def add(self, session: SessionReport) -> None:
        """Add the counts and findings of one session."""
        self.tally.add(session.tally)
        self.findings += session.findings
        self._drifts.add(session.drifts)
        for reason, count in session.superseded.items():
            self._superseded[reason] = self._superseded.get(reason, 0) + count
        self._adapters.add(session.adapter)
        if session.client_version:
            self._versions.add(session.client_version)
        self._usage = add_usage(self._usage, session.usage.added(self._counted))
        for kind, count in session.blocks.items():
            self._blocks[kind] = self._blocks.get(kind, 0) + count
        self._sessions.append((session.name, session.conversations))

    @property
    def has_blocks(self) -> bool:
        """Whether any session gave a block of the view."""
        return bool(self._blocks)

    @property
    def damaged(self) -> bool:
        """Whether some input was damaged, so that the command exits 3."""
        return any(finding.is_damage for finding in self.findings)

    @property
    def drifts(self) -> list[Finding]:
        """Findings about unknown kinds of rows, one for each kind over all sessions."""
        return list(self._drifts.findings())

    def as_json(self) -> dict[str, Any]:
        """Return the report. The session name distinguishes conversations of several sessions."""
        adapters = sorted(self._adapters)
        alone = len(self._sessions) == 1
        return {
            "adapter": adapters[0] if len(adapters) == 1 else ("mixed" if adapters else None),
            "clientVersion": ", ".join(sorted(self._versions)) or None,
            **self.tally.as_json(),
            "reasons": {
                "hidden": self.tally.hidden_by,
                "folded": self.tally.folded_by,
                "superseded": self._superseded,
            },
            "blocks": self._blocks,
            "conversations": {
                conversation if alone else f"{name}/{conversation}": thread
                for name, conversations in self._sessions
                for conversation, thread in conversations.items()
            },
            "usage": self._usage,
            "findings": [finding.as_json() for finding in (*self.findings, *self.drifts)],
        }
