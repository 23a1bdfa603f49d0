"""`validate`: what it must see in an agents directory, and what it must not complain about."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.engine.validate.files import CheckCounts, NothingToValidate, validate, validate_path
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.schemas import check

FULL = Path(__file__).parents[2] / "fixtures" / "valid" / "full"
AGENT = "id0000000000000000000001"

pytestmark = pytest.mark.feature("C-09")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a private copy of the full sample, with the modes that agentsdir gives."""
    copy = tmp_path / "root"
    shutil.copytree(FULL, copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


@pytest.fixture
def agent(root: Path) -> AgentPaths:
    """Return the paths of the sample's main agent."""
    return AgentPaths(root / "agents" / AGENT, AGENT)


def problems_of(root: Path, *, modes: bool = True) -> list[tuple[str, str]]:
    """Return (id, file below the root) of every problem, and check each one's own schema."""
    found = []
    for problem in validate_path(root, str(root), CheckCounts(), modes=modes):
        assert check("problem", problem.as_problem()) == []
        found.append((problem.id, problem.file.removeprefix(f"{root}/")))
    return found


def test_a_sound_directory_has_no_problem(root: Path) -> None:
    """Nor has one of its agents, or one of its files, taken alone."""
    assert problems_of(root) == []
    assert list(validate([root / "agents" / AGENT, root / "agentsdir.json"])) == []
    for path in root.rglob("*.json*"):
        assert list(validate([path])) == []


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        (".", 0o750),
        ("agents", 0o755),
        (f"agents/{AGENT}", 0o701),
        (f"agents/{AGENT}/events.jsonl", 0o640),
        (f"agents/{AGENT}/transcripts", 0o770),
        (f"agents/{AGENT}/transcripts/manifest.json", 0o604),
        ("agentsdir.json", 0o644),
    ],
)
def test_wide_modes_are_a_warning_where_they_are_asked_for(
    root: Path, place: str, mode: int
) -> None:
    """In a copy, such as a checkout, they say nothing about the agents."""
    (root / place).chmod(mode)

    (problem,) = validate_path(root, "r", CheckCounts(), modes=True)

    assert (problem.id, problem.severity) == ("wide-mode", "warning")
    assert f"{mode:04o}" in problem.message
    assert problems_of(root, modes=False) == []


def test_leftovers_and_foreign_entries_are_remarks(agent: AgentPaths, root: Path) -> None:
    """They are named, and fail nothing."""
    (root / ".tmp-agentsdir.json-00").touch(0o600)
    (root / "agents" / ".tmp-abc").mkdir(0o700)
    (root / "agents" / "Backup").mkdir(0o700)
    (agent.folder / ".tmp-state.json-00").touch(0o600)
    (agent.transcripts / "old.jsonl").touch(0o600)

    found = list(validate([root]))

    assert sorted(problem.id for problem in found) == [
        "foreign-entry",
        "leftover",
        "leftover",
        "leftover",
        "transcript-unlisted",
    ]
    assert not any(problem.is_damage for problem in found)


def test_a_torn_tail_is_damage_only_when_no_process_is_writing(
    agent: AgentPaths, root: Path
) -> None:
    """While a lock is held it is a record in the making."""
    with agent.log.open("ab") as log:
        log.write(b'{"seq":99,')

    assert problems_of(root) == [("torn-tail", f"agents/{AGENT}/events.jsonl")]
    for lock in (agent.turn, agent.lock):
        with locks.hold(lock):
            assert problems_of(root) == []


def test_derived_files_may_be_older_than_the_log(agent: AgentPaths, root: Path) -> None:
    """A crash between append and rewrite leaves them behind; that is no damage."""
    old = {path: path.read_bytes() for path in (agent.session, agent.state, agent.history)}
    with write_agent(agent) as writer:
        state = writer.state.session.state.value
        writer.append("history.reset", {}, "2026-01-03T00:00:00Z")
        change = {"from": state, "to": "terminated", "reason": "close"}
        writer.append("session.state", change, "2026-01-03T00:00:01Z")
    for path, data in old.items():
        path.write_bytes(data)

    found = list(validate([root]))

    assert {(problem.id, Path(problem.file).name) for problem in found} == {
        ("derived-stale", "session.json"),
        ("derived-stale", "state.json"),
        ("derived-stale", "history.jsonl"),
    }
    assert not any(problem.is_damage for problem in found)


def test_a_transcript_may_be_ahead_of_the_log(agent: AgentPaths, root: Path) -> None:
    """Bytes that were stored, and not recorded before a crash, are a remark."""
    stored = next(agent.transcripts.glob("*-*.jsonl"))
    with stored.open("ab") as transcript:
        transcript.write(b"{}\n")

    assert [kind for kind, _ in problems_of(root)] == ["transcript-ahead"]


def test_damage_in_a_log_is_not_blamed_on_what_was_made_of_it(
    agent: AgentPaths, root: Path
) -> None:
    """One lost line is one finding, not one for each derived file."""
    lines = agent.log.read_bytes().splitlines(keepends=True)
    agent.log.write_bytes(b"".join([*lines[:3], b"x" * 40 + b"\n", *lines[4:]]))

    found = problems_of(root)

    log = f"agents/{AGENT}/events.jsonl"
    assert found[0] == ("bad-json", log)
    assert {kind for kind, _ in found} <= {"bad-json", "seq-gap", "chain-break", "log-shorter"}


def test_features_and_versions_of_others_are_named(root: Path) -> None:
    """An unknown feature lets one read; an unknown version is looked into no further."""
    document = {"format": "agentsdir", "version": 1, "features": ["sealed"]}
    (root / "agentsdir.json").write_bytes(orjson.dumps(document))
    assert problems_of(root) == [("unknown-feature", "agentsdir.json")]

    (root / "agents" / AGENT / "events.jsonl").write_text("of the future\n")
    (root / "agentsdir.json").write_bytes(orjson.dumps({**document, "version": 7}))
    assert [kind for kind, _ in problems_of(root)] == ["unknown-version", "unknown-feature"]

    (root / "agentsdir.json").unlink()
    assert problems_of(root)[0] == ("missing", "agentsdir.json")


def test_one_bad_agent_does_not_hide_the_others(root: Path) -> None:
    """All agents are looked at, whatever the first is like."""
    for agent in (root / "agents").iterdir():
        (agent / "events.jsonl").write_bytes(b"\0" * 10)

    found = problems_of(root)

    assert len({file.split("/")[1] for kind, file in found if kind == "first-event"}) == 4


def test_a_place_is_line_and_byte_of_the_value(agent: AgentPaths, root: Path) -> None:
    """In a document of many lines, too."""
    text = agent.state.read_bytes()
    at = text.index(b'"idle' if b'"idle' in text else b'"turns"')
    agent.state.write_bytes(text.replace(b'"turns": 2', b'"turns": "2"'))

    (problem,) = (p for p in validate([root]) if p.id == "schema")

    assert problem.offset == at + len(b'"turns": ')
    assert problem.line == text[:at].count(b"\n") + 1
    assert str(problem) == (
        f"{agent.state}:{problem.line}: schema: state: must be integer, not string "
        f"at /counters/turns (byte {problem.offset})"
    )


LOG = (FULL / "agents" / AGENT / "events.jsonl").read_bytes()


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(LOG) - 1), st.integers(1, 255))
def test_no_changed_byte_of_a_log_goes_unseen(at: int, change: int) -> None:
    """Wherever a byte is changed, in the last line too, something fails; nothing raises."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / AGENT
        shutil.copytree(FULL / "agents" / AGENT, agent)
        data = bytearray(LOG)
        data[at] ^= change
        (agent / "events.jsonl").write_bytes(data)

        assert any(problem.is_damage for problem in validate([agent]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_damage_to_any_file_raises(data: Any) -> None:
    """Any file of an agent may hold anything."""
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / AGENT
        shutil.copytree(FULL / "agents" / AGENT, agent)
        files = sorted(path for path in agent.rglob("*") if path.is_file())
        path = data.draw(st.sampled_from(files))
        content = path.read_bytes()
        cut, junk = data.draw(st.integers(0, len(content))), data.draw(st.binary(max_size=20))
        path.write_bytes(content[:cut] + junk + data.draw(st.sampled_from([b"", content[cut:]])))

        for problem in validate([agent]):
            assert check("problem", problem.as_problem()) == []


@pytest.mark.parametrize(("lists", "found"), [(125, []), (126, ["too-deep"])])
def test_a_record_may_nest_128_levels_its_own_braces_counted(
    agent: AgentPaths, root: Path, lists: int, found: list[str]
) -> None:
    """The record, its data and the block stand around what is nested here."""
    first, *rest = agent.log.read_bytes().splitlines(keepends=True)
    at = next(index for index, line in enumerate(rest) if b'"user_message"' in line)
    nested = b"[" * lists + b"]" * lists
    rest[at] = rest[at].replace(b'"source":null', b'"source":null,"extra":' + nested)
    agent.log.write_bytes(b"".join([first, *rest]))

    assert [kind for kind, _ in problems_of(root) if kind == "too-deep"] == found


def test_nothing_of_this_format_is_an_error(tmp_path: Path) -> None:
    """Success would say that something was checked."""
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "b.jsonl").write_text('{"parentUuid": null, "type": "user", "message": {}}\n')
    for path in (tmp_path, tmp_path / "a.json", tmp_path / "b.jsonl"):
        with pytest.raises(NothingToValidate):
            list(validate([path]))
