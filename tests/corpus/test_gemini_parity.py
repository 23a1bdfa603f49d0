"""A turn of Gemini CLI leaves the blocks of its chat file, however early either was heard (D21)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from gemini_differences import RULES, differences, named_alike, rule_for
from gemini_runs import parts

from agentsdir.adapters.gemini.follow import GeminiFollower
from agentsdir.adapters.gemini.stream import GeminiTranslator, JoinedTurn
from agentsdir.formats.blocks import MAIN, Reducer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gemini_differences import Difference
    from gemini_runs import Part

    from agentsdir.formats.blocks import Block

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
OWN = ROOT / "fixtures" / "gemini-runs"
VERSIONS = ("0.29.0", "0.61.0")
# When the file is looked at: at the end only, before the first line, and before or after each.
LOOKS = ("late", "early", "ahead", "behind")
_MANY = 200  # of outputs with more lines only the ends are looked at

pytestmark = [pytest.mark.feature("B-05"), pytest.mark.feature("B-06")]


def _scenarios() -> list[Path]:
    """Return our own recordings, and the corpus where it is."""
    found = [path for folder in (OWN, CORPUS) for path in folder.glob("gemini-*/*")]
    return sorted(path for path in found if path.parent.name.removeprefix("gemini-") in VERSIONS)


every_scenario = pytest.mark.parametrize(
    "scenario", _scenarios(), ids=lambda path: f"{path.parent.name}-{path.name}"
)
recorded = pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded corpus is not here")


def _reduced(events: Iterable[dict[str, Any]]) -> list[Block]:
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    assert reducer.open_blocks == []
    return [block for blocks in reducer.conversations.values() for block in blocks]


def _joined(part: Part, looks: str, folder: Path) -> Iterator[dict[str, Any]]:
    part.tree.lay(folder, part.start)
    follower = GeminiFollower(folder / part.tree.main(part.run.session), hidden=False)
    assert all(event["type"] for event in follower.poll())  # what was there before the turn
    turn = JoinedTurn(GeminiTranslator(), follower)
    if looks == "early":
        part.tree.lay(folder, part.end)
        yield from turn.poll()
    for moment, line in zip(part.run.moments, part.run.lines, strict=True):
        if looks in ("ahead", "behind"):
            part.tree.lay(folder, moment)
        if looks == "ahead":
            yield from turn.poll()
        yield from turn.line(line)
        if looks == "behind":
            yield from turn.poll()
    part.tree.lay(folder, part.end)
    yield from turn.end()


def _alone(part: Part) -> Iterator[dict[str, Any]]:
    translator = GeminiTranslator()
    for line in part.run.lines:
        yield from translator.line(line)
    yield from translator.end()


@cache
def _parts(scenario: Path) -> list[Part]:
    """Return the runs whose session is still there: a later one may have deleted it."""
    return [part for part in parts(scenario) if part.after]


def _of_joined(scenario: Path) -> Iterator[Difference]:
    for part in _parts(scenario):
        for looks in LOOKS if len(part.run.lines) < _MANY else LOOKS[:2]:
            with TemporaryDirectory() as folder:
                blocks = _reduced(_joined(part, looks, Path(folder)))
            yield from differences(part.run.version, blocks, part.after)


def _of_stdout(scenario: Path) -> Iterator[Difference]:
    for part in _parts(scenario):
        blocks, named = named_alike(_reduced(_alone(part)), part.after)
        yield from (one._replace(version=part.run.version) for one in named)
        yield from differences(part.run.version, blocks, part.after)


def _untold(found: Iterable[Difference], *, joined: bool) -> list[str]:
    return [
        f"{one.side} {one.field} {one.block}"[:400]
        for one in found
        if rule_for(one, joined=joined) is None
    ]


@every_scenario
def test_a_joined_turn_gives_the_blocks_of_the_file(scenario: Path) -> None:
    """Id, type, content, pairing, conversation and order, but for what the table lets stay."""
    assert _untold(_of_joined(scenario), joined=True) == []


@every_scenario
def test_stdout_alone_gives_the_blocks_of_the_file_that_it_has(scenario: Path) -> None:
    """Type, content, pairing and order, but for what the table lists."""
    assert _untold(_of_stdout(scenario), joined=False) == []


@every_scenario
def test_a_joined_turn_tells_everything_once(scenario: Path) -> None:
    """One call and at most one result for each id, one answer for each message, one prompt."""
    for part in _parts(scenario):
        for looks in LOOKS[:2]:
            with TemporaryDirectory() as folder:
                told = _reduced(_joined(part, looks, Path(folder)))
            blocks = [block for block in told if block["conversationId"] == MAIN]
            for kinds, name in (
                (("tool_use", "subagent"), "toolUseId"),
                (("tool_result",), "toolUseId"),
                (("assistant_text",), "messageId"),
                (("user_message",), "type"),
            ):
                keys = [b.get(name, b["id"]) for b in blocks if b["type"] in kinds]
                assert len(keys) == len(set(keys))


@recorded
def test_each_row_of_the_table_is_needed_in_its_versions() -> None:
    """A difference that no client makes any more is not tolerated any more."""
    found: dict[str, set[str]] = {}
    for scenario in _scenarios():
        for joined, given in ((True, _of_joined(scenario)), (False, _of_stdout(scenario))):
            for one in given:
                rule = rule_for(one, joined=joined)
                if rule is not None and rule.stays == joined:
                    found.setdefault(rule.id, set()).add(one.version)
    assert {name: sorted(versions) for name, versions in found.items()} == {
        rule.id: sorted(rule.versions.split()) for rule in RULES
    }


def test_the_document_has_the_same_table() -> None:
    """Row by row, so that what is tolerated is what is promised."""
    page = (ROOT / "docs/clients/gemini.md").read_text(encoding="utf-8")
    block = page.split("<!-- gemini-stream: begin -->")[1].split("<!-- gemini-stream: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in block.strip().splitlines()[2:]]
    assert [(row[0].strip("`"), *row[1:]) for row in rows] == [
        (rule.id, rule.what, rule.where, rule.joined, rule.versions, rule.why) for rule in RULES
    ]
