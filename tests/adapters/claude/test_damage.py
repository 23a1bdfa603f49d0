"""Damaged files give everything that is whole in them, and say what was wrong."""

import pytest
from claude_support import balanced, lines, parse, prompts, reader, said, user

pytestmark = pytest.mark.feature("B-06")

ONE = lines(user("u1", None, "one"))
TWO = lines(said("a1", "u1", "answer"))
THREE = lines(user("u2", "a1", "three"))


@pytest.mark.parametrize(
    ("data", "findings", "typed", "damaged"),
    [
        pytest.param(ONE + TWO + THREE[:-30], ["torn-tail"], ["one"], 1, id="torn tail"),
        pytest.param(ONE + TWO + THREE[:-1], [], ["one", "three"], 0, id="no last newline"),
        pytest.param(ONE + TWO[:50] + THREE, ["splice"], ["one", "three"], 1, id="stub + record"),
        pytest.param(ONE[:-1] + TWO + THREE, ["splice"], ["one", "three"], 1, id="}{"),
        pytest.param(
            ONE + b"\0" * 400 + b"\n" + TWO + THREE, ["nul-run"], ["one", "three"], 1, id="NUL line"
        ),
        pytest.param(ONE + b"\0" * 9 + TWO + THREE, ["nul-run"], ["one", "three"], 1, id="NUL run"),
        pytest.param(TWO[9:] + ONE, ["bad-json"], ["one"], 1, id="first line"),
        pytest.param(ONE + b"# comment\n" + THREE, ["bad-json"], ["one", "three"], 1, id="junk"),
        pytest.param(ONE + b"[1]\n" + THREE, ["not-an-object"], ["one", "three"], 1, id="a list"),
        pytest.param(
            b"\xef\xbb\xbf" + (ONE + THREE).replace(b"\n", b"\r\n"),
            [], ["one", "three"], 0, id="BOM and CRLF",
        ),
    ],
)  # fmt: skip
def test_whole_records_survive_damage_around_them(
    data: bytes, findings: list[str], typed: list[str], damaged: int
) -> None:
    """Each kind of damage costs what it hit, has its finding, and no line is lost count of."""
    sink = parse(data)
    assert [finding.id for finding in sink.findings if finding.is_damage] == findings
    assert prompts(sink) == typed
    assert sink.tally.damaged == damaged
    assert balanced(sink)
    assert reader().detect(data, "")


def test_bad_utf8_is_replaced_and_marked() -> None:
    """The block says that it cannot equal the bytes."""
    sink = parse(ONE.replace(b"one", b"o\xffe"))
    assert prompts(sink) == ["o\ufffde"]
    assert next(sink.blocks())["lossy"] == ["bad-utf8"]
    assert [finding.id for finding in sink.findings] == ["bad-utf8"]


def test_a_lone_surrogate_is_replaced_and_marked() -> None:
    """The client writes such escapes itself: the line is whole."""
    sink = parse(ONE.replace(b"one", b"a\\ud83dz"))
    assert prompts(sink) == ["a\ufffdz"]
    assert next(sink.blocks())["lossy"] == ["lone-surrogate"]
    assert sink.tally.parsed == 1


def test_unicode_line_separators_end_no_line() -> None:
    """Only a line feed does; the client writes these raw."""
    text = "a\u2028b\u2029c\u0085d\ufeffe"
    sink = parse(ONE.replace(b"one", text.encode()))
    assert prompts(sink) == [text]
    assert sink.tally.lines == 1


def test_ids_are_those_of_the_undamaged_file() -> None:
    """Damage moves no id, not even of rows without uuid on a welded line."""
    bare = user("x", None, "hi")
    del bare["uuid"]
    whole = {block["id"] for block in parse(ONE + lines(bare)).blocks("all")}
    welded = {block["id"] for block in parse(ONE[:-1] + lines(bare)).blocks("all")}
    assert whole == welded
