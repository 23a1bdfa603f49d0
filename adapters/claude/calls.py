"""Tool calls and their results, paired by id within a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from agentsdir.adapters.claude.emit import Place
    from agentsdir.formats.reading.block_sink import BlockSink

_ANSWERED = -2


class _Orphan(NamedTuple):
    conversation: str
    tool_use_id: str
    status: str
    place: Place


class Calls:
    """Which calls of a session are open.

    A repeated id (a retry, a copy) means the nearest call before the result.
    """

    def __init__(self, sink: BlockSink) -> None:
        self._sink = sink
        self._open: dict[tuple[str, str], int] = {}
        self._orphans: list[_Orphan] = []

    def opened(self, conversation: str, tool_use_id: str, handle: int) -> None:
        """Note a call. Its status is stated later: here, or by `finish`."""
        key = (conversation, tool_use_id)
        earlier = self._open.get(key)
        if earlier is not None and earlier != _ANSWERED:
            self._sink.amend(earlier, status="pending")
        self._open[key] = handle

    def answered(self, tool_use_id: str, status: str, place: Place) -> None:
        """Note a result, which settles the status of its call."""
        key = (place.conversation, tool_use_id)
        handle = self._open.get(key)
        if handle is None:
            self._orphans.append(_Orphan(place.conversation, tool_use_id, status, place))
        elif handle != _ANSWERED:
            self._sink.amend(handle, status=status)
            self._open[key] = _ANSWERED

    def finish(self) -> None:
        """Settle what is left: calls without a result, and results without a call."""
        for orphan in self._orphans:
            key = (orphan.conversation, orphan.tool_use_id)
            handle = self._open.get(key)
            if handle is None:
                source = orphan.place.source
                message = f"no call {orphan.tool_use_id} in conversation {orphan.conversation}"
                self._sink.finding(
                    Finding(
                        "orphan-result",
                        source["file"],
                        source["line"],
                        source["offset"],
                        source["length"],
                        message,
                    )
                )
            elif handle != _ANSWERED:
                self._sink.amend(handle, status=orphan.status)
                self._open[key] = _ANSWERED
        for handle in self._open.values():
            if handle != _ANSWERED:
                self._sink.amend(handle, status="pending")
