"""Recorded standard output of a headless run: ``stream-json`` lines, or the one JSON report.

Both are lossy: no thoughts, no message ids, of results only what was displayed. A transcript is
better where there is one; this reads what else would be no transcript at all.
"""

from __future__ import annotations

from typing import Any

import orjson

from agentsdir.adapters.contract import Transcript
from agentsdir.adapters.gemini.shapes import dict_of, text_of
from agentsdir.adapters.gemini.tokens import report_usage, stream_usage
from agentsdir.formats import times
from agentsdir.formats.digest import short_hash
from agentsdir.formats.reading.blocks import MAIN, Source, make_block
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import Row, read_rows
from agentsdir.formats.reading.sink import ParseSink
from agentsdir.formats.reading.source import Source as Bytes


class StreamReader:
    """Reads the lines of one ``stream-json`` run into a sink."""

    def __init__(self, source: Bytes, sink: ParseSink) -> None:
        self._source = source
        self._sink = sink
        self._session = ""
        self._model: str | None = None
        self._seen: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        # The answer that is being put together: its first row and its pieces.
        self._open: Row | None = None
        self._pieces: list[str] = []

    def read(self) -> None:
        """Read all lines; each is settled once."""
        with self._source.open() as stream:
            rows = read_rows(stream, self._source.name, self._sink.tally, self._sink.finding)
            for row in rows:
                self._take(row)
        self._close_answer()

    def _take(self, row: Row) -> None:
        value, tally = row.value, self._sink.tally
        kind = value.get("type")
        if kind == "message" and value.get("role") == "assistant":
            content = value.get("content")
            if isinstance(content, str):
                (tally.settle_folded if self._open else tally.settle_parsed)(row)
                self._open = self._open or row
                self._pieces.append(content)
                return
        self._close_answer()
        read = getattr(self, f"_read_{kind}", None) if kind in _KINDS else None
        if read is None or not read(row, value):
            self._log(row, value)
            tally.settle_hidden(row)
        else:
            tally.settle_parsed(row)

    def _close_answer(self) -> None:
        row, self._open = self._open, None
        if row is not None:
            text, self._pieces = "".join(self._pieces), []
            self._add("assistant_text", self._row_id(row), row, content=text)

    def _read_init(self, row: Row, value: dict[str, Any]) -> bool:
        self._session = self._session or text_of(value.get("session_id"))
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
        message = text_of(error.get("message")) or ("run failed" if failed else "run ended")
        self._add(
            "system", self._row_id(row), row, subtype="error" if failed else "session_end",
            message=message, metadata={"stats": stats},
        )  # fmt: skip
        used = stream_usage(stats)
        if used is not None:
            self._sink.use(MAIN, used)
        return True

    def _finish(self, call: str, status: str) -> None:
        handle = self._uses.pop(call, None)
        if handle is not None:
            self._sink.amend(handle, status=status)

    def finish_all(self) -> None:
        """State of every call that got no result that it is pending."""
        for call in list(self._uses):
            self._finish(call, "pending")

    def _log(self, row: Row, value: dict[str, Any]) -> None:
        if self._sink.wants_hidden:
            kind = value.get("type")
            kind = kind if isinstance(kind, str) else None
            self._add(
                "system", self._row_id(row), row, subtype="log", message=f"{kind or 'unknown'} row",
                hidden=True, metadata={"rowType": kind, "row": value},
            )  # fmt: skip

    def _call_id(self, prefix: str, call: str) -> str:
        return self._unique(f"{prefix}{call}")

    def _row_id(self, row: Row) -> str:
        return self._unique("#" + short_hash(row.raw.rstrip(b"\r\n")))

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self._seen:
            self._seen[name] += 1
            unique = f"{name}~{self._seen[name]}"
        self._seen[unique] = 1
        return unique

    def _add(self, kind: str, block_id: str, row: Row, **fields: Any) -> int:
        if row.lossy:
            fields["lossy"] = list(row.lossy)
        source: Source = {
            "file": self._source.name,
            "line": row.line,
            "offset": row.offset,
            "length": row.length,
        }
        timestamp = times.native(row.value.get("timestamp"))
        return self._sink.add(
            make_block(kind, block_id, MAIN, self._session, timestamp, source, **fields)
        )


_KINDS = ("init", "message", "tool_use", "tool_result", "error", "result")


def read_stream(transcript: Transcript, sink: ParseSink) -> None:
    """Read a recorded ``stream-json`` run."""
    reader = StreamReader(transcript.source, sink)
    reader.read()
    reader.finish_all()


def read_report(transcript: Transcript, sink: ParseSink) -> None:
    """Read the one object that ``--output-format json`` prints: an answer and statistics."""
    source = transcript.source
    with source.open() as stream:
        data = stream.read()
    tally = sink.tally
    tally.lines += 1
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as problem:
        tally.damaged += 1
        message = f"the document ends before it is complete: {problem}"
        sink.finding(Finding("half-document", source.name, 1, 0, len(data), message))
        return
    tally.parsed += 1
    session = text_of(dict_of(value).get("session_id"))
    place: Source = {"file": source.name, "line": 1, "offset": 0, "length": len(data)}
    mark = "#" + short_hash(data)
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
            metadata={"stats": value.get("stats")},
        )
    )
    used = report_usage(value.get("stats"))
    if used is not None:
        sink.use(MAIN, used)
