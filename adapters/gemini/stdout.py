"""Recorded standard output of a headless run: ``stream-json`` lines, or the one JSON report.

Both lack thoughts and message ids, and have only the displayed part of results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini.shapes import Names, dict_of, report_usage, stream_usage, text_of
from agentsdir.formats import times
from agentsdir.formats.blocks import MAIN, make_block, usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import Transcript
    from agentsdir.formats.blocks import Block, BlockSource
    from agentsdir.formats.rows import Row
    from agentsdir.formats.sink import BlockSink, ParseSink


FAILED = "run failed"
"""The message for a failed run whose result names no error."""


class StreamReader:
    """Reads the lines of one ``stream-json`` run into a sink.

    Args:
        file: the file's name in blocks.
        sink: takes the blocks.
        on_piece: called with the block and the piece for each piece of an answer.
    """

    def __init__(
        self,
        file: str,
        sink: BlockSink,
        on_piece: Callable[[Block, str], None] = lambda _block, _piece: None,
    ) -> None:
        self.session = ""
        self._file = file
        self._sink = sink
        self._on_piece = on_piece
        self._names = Names()
        self._uses: dict[str, int] = {}
        # Whether the run reported its usage.
        self.is_counted = False
        # The current answer, and its pieces.
        self._answer: Block | None = None
        self._pieces: list[str] = []

    def take(self, row: Row) -> None:
        """Take one row, and settle it."""
        value, tally = row.value, self._sink.tally
        kind = value.get("type")
        if kind == "message" and value.get("role") == "assistant":
            content = value.get("content")
            if isinstance(content, str):
                if self._answer:
                    tally.settle_folded(row, "continued")
                else:
                    tally.settle_parsed(row)
                self._more(row, content)
                return
        self._close_answer()
        read = getattr(self, f"_read_{kind}", None) if kind in _KINDS else None
        if read is None or not read(row, value):
            self._log(row, value)
            tally.settle_hidden(row, "unknown")
            what, name = "line", kind
            if kind == "message":
                what, name = "role", value.get("role")
            named = text_of(name) or "without type"
            self._sink.drifts.note(what, named, row.source(self._file), None)
        else:
            tally.settle_parsed(row)

    def finish(self) -> None:
        """State what only the end settles: the last answer, and calls without a result."""
        self._close_answer()
        for call in list(self._uses):
            self._finish(call, "pending")

    def _more(self, row: Row, piece: str) -> None:
        if self._answer is None:
            self._answer = self._block("assistant_text", self._row_id(row), row, content="")
        self._pieces.append(piece)
        self._on_piece(self._answer, piece)

    def _close_answer(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            text, self._pieces = "".join(self._pieces), []
            self._sink.add({**answer, "content": text})

    def _read_init(self, row: Row, value: dict[str, Any]) -> bool:
        self.session = self.session or text_of(value.get("session_id"))
        model = value.get("model")
        self._add(
            "system", self._row_id(row), row, subtype="session_start", message="session started",
            metadata={"model": model},
        )  # fmt: skip
        return True

    def _read_message(self, row: Row, value: dict[str, Any]) -> bool:
        content = value.get("content")
        if value.get("role") != "user" or not isinstance(content, str):
            return False
        self._add("user_message", self._row_id(row), row, content=content)
        return True

    def _read_tool_use(self, row: Row, value: dict[str, Any]) -> bool:
        call = text_of(value.get("tool_id"))
        handle = self._add(
            "tool_use", self._call_id("c", call), row, toolName=text_of(value.get("tool_name")),
            toolUseId=call, input=value.get("parameters"),
        )  # fmt: skip
        self._finish(call, "pending")
        self._uses[call] = handle
        return True

    def _read_tool_result(self, row: Row, value: dict[str, Any]) -> bool:
        call = text_of(value.get("tool_id"))
        failed = value.get("status") == "error"
        output = value.get("output")
        error = dict_of(value.get("error"))
        self._add(
            "tool_result", self._call_id("r", call), row, toolUseId=call,
            output=error.get("message") if output is None else output, isError=failed,
        )  # fmt: skip
        self._finish(call, "error" if failed else "success")
        return True

    def _read_error(self, row: Row, value: dict[str, Any]) -> bool:
        severity = value.get("severity")
        self._add(
            "system", self._row_id(row), row,
            subtype="status" if severity == "warning" else "error",
            message=text_of(value.get("message")), metadata={"level": severity},
        )  # fmt: skip
        return True

    def _read_result(self, row: Row, value: dict[str, Any]) -> bool:
        failed = value.get("status") == "error"
        error = dict_of(value.get("error"))
        stats = value.get("stats")
        message = text_of(error.get("message")) or (FAILED if failed else "run ended")
        self._add(
            "system", self._row_id(row), row, subtype="error" if failed else "session_end",
            message=message, metadata={"stats": stats},
        )  # fmt: skip
        used = stream_usage(stats)
        if used is not None:
            self._sink.use(MAIN, used)
            self.is_counted = True
        return True

    def _finish(self, call: str, status: str) -> None:
        handle = self._uses.pop(call, None)
        if handle is not None:
            self._sink.amend(handle, status=status)

    def _log(self, row: Row, value: dict[str, Any]) -> None:
        if self._sink.wants_hidden:
            kind = value.get("type")
            kind = kind if isinstance(kind, str) else None
            self._add(
                "system", self._row_id(row), row, subtype="log", message=f"{kind or 'unknown'} row",
                hidden=True, metadata={"rowType": kind, "row": value},
            )  # fmt: skip

    def _call_id(self, prefix: str, call: str) -> str:
        return self._names.unique(f"{prefix}{call}")

    def _row_id(self, row: Row) -> str:
        return self._names.unique("#" + short_hash(row.raw.rstrip(b"\r\n")))

    def _add(self, kind: str, block_id: str, row: Row, **fields: Any) -> int:
        return self._sink.add(self._block(kind, block_id, row, **fields))

    def _block(self, kind: str, block_id: str, row: Row, **fields: Any) -> Block:
        if row.lossy:
            fields["lossy"] = list(row.lossy)
        source = row.source(self._file)
        timestamp = times.native(row.value.get("timestamp"))
        return make_block(kind, block_id, MAIN, self.session, timestamp, source, **fields)


_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


def read_stream(transcript: Transcript, sink: ParseSink) -> None:
    """Read a recorded ``stream-json`` run."""
    source = transcript.source
    reader = StreamReader(source.name, sink)
    with source.open() as stream:
        for row in read_rows(stream, source.name, sink.tally, sink.finding):
            reader.take(row)
    reader.finish()
    if not reader.is_counted:  # a signal ended it, and whatever it spent stands nowhere
        sink.use(MAIN, usage(0, 0, exact=False))


# What a report has. What is more is kept beside the statistics.
_REPORTED = ("session_id", "response", "stats", "error", "warnings")


def read_report(transcript: Transcript, sink: ParseSink) -> None:
    """Read the one object that ``--output-format json`` prints: an answer and statistics."""
    source = transcript.source
    data = source.document()
    tally = sink.tally
    tally.lines += 1
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        tally.damaged += 1
        message = f"the document ends before it is complete: {problem}"
        sink.finding(Finding("half-document", source.name, message, 1, 0, len(data)))
        return
    tally.parsed += 1
    session = text_of(dict_of(value).get("session_id"))
    place: BlockSource = {"file": source.name, "line": 1, "offset": 0, "length": len(data)}
    mark = "#" + short_hash(data)
    for key in value:
        if key not in _REPORTED:
            sink.drifts.note("key", key, place, None)
    answer, error = value.get("response"), value.get("error")
    if isinstance(answer, str):
        sink.add(
            make_block("assistant_text", f"{mark}:x", MAIN, session, None, place, content=answer)
        )
    sink.add(
        make_block(
            "system",
            f"{mark}:end",
            MAIN,
            session,
            None,
            place,
            subtype="session_end" if error is None else "error",
            message=text_of(dict_of(error).get("message")) or "run ended",
            metadata={key: value[key] for key in value if key not in ("session_id", "response")},
        )
    )
    used = report_usage(value.get("stats"))
    if used is not None:
        sink.use(MAIN, used)
