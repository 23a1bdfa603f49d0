"""Times."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import times
from agentsdir.schemas import rfc3339
from agentsdir.schemas.rfc3339 import RFC3339


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_a_time_written_is_rfc_3339_and_comes_back(naive: datetime) -> None:
    """To the microsecond, in UTC, in any year of the calendar."""
    moment = naive.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))
    text = times.to_text(moment)
    assert len(text) == 27
    assert text.endswith("Z")
    assert times.is_rfc3339(text)
    assert times.from_text(text) == moment


GOOD = [
    "2026-01-02T03:04:05Z",
    "2026-01-02t03:04:05.1z",
    "2024-02-29T23:59:59.123456789+14:00",
    "2016-12-31T23:59:60Z",
    "0001-01-01T00:00:00-00:00",
]
BAD = [
    "",
    "0000-01-01T00:00:00Z",
    "0000-01-01T00:00:00.000000Z",
    "2026-01-02",
    "2026-01-02T03:04:05",
    "2026-01-02 03:04:05Z",
    "2026-1-2T03:04:05Z",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-01-02T24:00:00Z",
    "2026-01-02T03:04:05.Z",
    "2026-01-02T03:04:05Z\n",
    "2026-01-02T03:04:05+0100",
    "\u0662026-01-02T03:04:05Z",
    "2026-01-02T03:04:61Z",
]


@pytest.mark.parametrize("text", GOOD)
def test_complete_times_are_accepted(text: str) -> None:
    """Offsets, fractions and leap seconds included; a foreign one is kept as it stands."""
    assert times.is_rfc3339(text)
    assert times.native(text) == text


@pytest.mark.parametrize("text", BAD)
def test_everything_else_is_refused(text: str) -> None:
    """Half a time is none."""
    assert not times.is_rfc3339(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1767323045, "2026-01-02T03:04:05.000000Z"),
        (1767323045678, "2026-01-02T03:04:05.678000Z"),
        (1767323045.5, "2026-01-02T03:04:05.500000Z"),
        ("2026-01-02 03:04:05", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05+0130", "2026-01-02T01:34:05.000000Z"),
        ("2026-01-02", "2026-01-02T00:00:00.000000Z"),
        ("0001-01-01", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_foreign_times_become_ours(value: Any, text: str) -> None:
    """Epoch seconds, milliseconds, and times without an offset are understood."""
    assert times.native(value) == text


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "soon",
        "",
        [],
        {},
        math.nan,
        math.inf,
        -math.inf,
        1e300,
        10**400,
        -(10**400),
        "0001-01-01T00:00+05:00",
        "9999-12-31T23:59-05:00",
    ],
)
def test_a_foreign_time_that_says_nothing_is_null(value: Any) -> None:
    """Never an exception, whatever a transcript holds."""
    assert times.native(value) is None


@given(st.one_of(st.text(max_size=30), st.floats(), st.integers(), st.from_regex(RFC3339)))
def test_any_foreign_time_gives_rfc_3339_or_null(value: Any) -> None:
    """What is not null is a complete time."""
    text = times.native(value)
    assert text is None or times.is_rfc3339(text)


@pytest.mark.parametrize(
    "bad", ["05.678", "05.67xZ", "65.678Z", "05:678Z", "\u0660\u0665.678Z", "05.6789"]
)
def test_a_minute_seen_before_vouches_for_no_seconds(bad: str) -> None:
    """What was checked of one time is no proof of the next."""
    assert times.native("2026-01-02T03:04:05.678Z") == "2026-01-02T03:04:05.678Z"
    text = times.native("2026-01-02T03:04:" + bad)
    assert text is None or times.is_rfc3339(text)


def test_times_without_an_offset_are_utc_in_any_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zone of the machine plays no part."""
    monkeypatch.setenv("TZ", "America/New_York")
    assert times.native("2026-01-02T03:04:05.5") == "2026-01-02T03:04:05.500000Z"
    assert times.from_text("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@given(
    st.lists(st.integers(0, 99), min_size=5, max_size=5), st.integers(0, 9999),
    st.sampled_from([".000000Z", ".123456Z", "Z", ".1234567Z", ".12345٣Z", ".123456z"]),
)  # fmt: skip
def test_our_own_form_is_recognised_without_the_pattern_of_all_others(
    parts: list[int], year: int, end: str
) -> None:
    """To the same effect, on days and at hours that there are or are not."""
    month, day, hour, minute, second = parts
    text = f"{year:04}-{month % 15:02}-{day % 34:02}T{hour % 26:02}:{minute:02}:{second:02}{end}"
    assert times.is_rfc3339(text) == rfc3339.is_rfc3339(text)


def test_days_that_there_are_not_are_no_dates() -> None:
    """In every month of a leap year and of others, as the calendar has them."""
    for year in (1, 1900, 2000, 2023, 2024):
        for month in range(1, 13):
            for day in range(1, 33):
                try:
                    datetime(year, month, day, tzinfo=UTC)
                    exists = True
                except ValueError:
                    exists = False
                for rest in ("T00:00:00Z", "T00:00:00.000000Z"):
                    text = f"{year:04}-{month:02}-{day:02}{rest}"
                    assert times.is_rfc3339(text) == exists, text
