"""A point in a log, up to which it is read (docs/commands.md, "Replay")."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.formats import times
from agentsdir.formats.errors import UsageError
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from datetime import datetime

    from agentsdir.formats.directory.log import LogLine

_FAR = 18  # digits; no log has as many records


class Point(NamedTuple):
    """Where reading stops: at the end, after a sequence number, or before what is later.

    Order is file order. Numbers may be missing and clocks jump, so the first record decides that
    has the number or a higher one, or a later time; what follows it is not looked at.
    """

    seq: int | None = None
    moment: datetime | None = None

    def is_passed_by(self, line: LogLine) -> bool:
        """Tell whether a line is the first that is beyond the point."""
        if self.moment is None or line.record is None:
            return False
        moment = _moment(line.record.ts)
        # A time that says nothing, of another writer, keeps nobody from reading on.
        return moment is not None and moment > self.moment

    def is_reached_by(self, line: LogLine) -> bool:
        """Tell whether a line is the last one to be read."""
        return self.seq is not None and line.record is not None and line.record.seq >= self.seq


END = Point()


def parse_point(text: str) -> Point:
    """Return the point that a sequence number or an RFC 3339 time names. Raises `UsageError`."""
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        if not digits:
            raise UsageError("the records of a log are numbered from 1")
        return Point(seq=int(digits) if len(digits) <= _FAR else 10**_FAR)
    if (moment := _moment(text)) is not None:
        return Point(moment=moment)
    raise UsageError(
        f"{text!r} is neither the number of a record nor a time",
        hint="a time is RFC 3339, such as 2026-01-02T03:04:05Z",
    )


def _moment(text: str) -> datetime | None:
    if not is_rfc3339(text):
        return None
    try:
        return times.from_text(text.upper())
    except (OverflowError, ValueError):  # a leap second, or a day that UTC does not have
        return None
