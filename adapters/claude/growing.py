"""One session of Claude Code that grows: files that lengthen and appear, or lines of stdout.

The files share calls and subagents, and the sink. Rows are taken as they come, in any order among
the files; `settle` then states what they changed elsewhere, and `finish` what only the end tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.calls import Calls
from agentsdir.adapters.claude.reading import Reading
from agentsdir.adapters.claude.subagents import Subagents

if TYPE_CHECKING:
    from agentsdir.formats.reading.block_sink import BlockSink


class Growing:
    """The readings of one session.

    Args:
        sink: takes the blocks of the whole session, in general a `LiveSink`.
    """

    def __init__(self, sink: BlockSink) -> None:
        self._sink = sink
        self._calls = Calls(sink)
        self._subagents = Subagents(sink)
        self._readings: list[Reading] = []

    def open(
        self, file: str, *, thread: str | None = None, session: str = "", meta: Any = None
    ) -> Reading:
        """Begin a file: the main transcript, or stdout, where `thread` is None.

        Args:
            file: the name that blocks and findings say.
            thread: the subagent whose file it is.
            session: the session id for rows that come before any that names one.
            meta: the sidecar of a subagent's file, as far as it is there.
        """
        if thread is None:
            self._sink.open_main()
        reading = Reading(
            self._sink,
            self._calls,
            self._subagents,
            file,
            thread=thread,
            session=session,
            meta=meta or {},
        )
        self._readings.append(reading)
        return reading

    @property
    def is_out_of_order(self) -> bool:
        """Whether a subagent's file was read before the rows of the main transcript it repeats."""
        return self._subagents.copied_early

    def settle(self) -> None:
        """State what the rows so far mean for blocks before them: links, statuses, branches."""
        for reading in self._readings:
            reading.branches()
        self._subagents.state()

    def finish(self) -> None:
        """State what only the end tells; no row may follow. Children end before their parents."""
        for reading in reversed(self._readings):
            reading.finish()
        self._calls.finish()
        self._subagents.state()
        self._subagents.report()
        for reading in self._readings[:1]:
            reading.compare()
