"""Agent files: what a subagent is to be, and the props that fill them in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.engine.spawn import AgentFile, read_agent_file
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError

WHOLE = """
provider = "claude"
model = "opus"
system = "You are a researcher of {{topic}}. Be {{ manner }}."
prompt = "Find {{count}} sources about {{topic}}."
profile = "researcher"
max_ticks = 3

[props]
topic = "anything"
manner = "brief"
count = 5
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes an agent file."""

    def write(text: str) -> Path:
        path = tmp_path / "agent.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.feature("A-05")
def test_props_fill_in_the_placeholders_and_those_that_are_given_go_first(
    write: Callable[[str], Path],
) -> None:
    """The file's own are what is meant where none is given."""
    path = write(WHOLE)
    assert read_agent_file(path, {"topic": "foxes"}) == AgentFile(
        provider="claude",
        model="opus",
        system="You are a researcher of foxes. Be brief.",
        prompt="Find 5 sources about foxes.",
        profile="researcher",
        max_ticks=3,
    )


def test_a_file_may_leave_everything_open(write: Callable[[str], Path]) -> None:
    """Then all of it comes from the parent, or the command line."""
    assert read_agent_file(write(""), {}) == AgentFile()


def test_a_prop_is_not_looked_through_for_placeholders(write: Callable[[str], Path]) -> None:
    """A caller that gives one prop cannot reach the others by it."""
    path = write('prompt = "{{a}} {{b}}"\nprops = {a = "{{b}}", b = "x\\\\1"}')
    assert read_agent_file(path, {}).prompt == "{{b}} x\\1"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])))
def test_whatever_a_prop_says_stands_in_the_prompt_as_it_is(said: str) -> None:
    """Braces, backslashes and line ends too."""
    read, written = os.pipe()
    os.write(written, b'prompt = "<{{x}}>"')
    os.close(written)
    try:
        path = Path(f"/dev/fd/{read}")
        assert read_agent_file(path, {"x": said}).prompt == f"<{said}>"
    finally:
        os.close(read)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prompt = ", "is not TOML"),
        ("promt = 'x'", "has 'promt', which is none of provider"),
        ("model = 3", "says model = 3, which is no text"),
        ("max_ticks = 0", "says max_ticks = 0, which is no number above 0"),
        ("max_ticks = true", "says max_ticks = True"),
        ("props = 1", "has props that are no table"),
        ("[props]\na = []", "says a = [], which is neither text nor number"),
        ("[props]\na = 2026-01-02", "neither text nor number"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_the_reason(
    write: Callable[[str], Path], text: str, reason: str
) -> None:
    """And with its name."""
    path = write(text)
    with pytest.raises(Invalid) as refused:
        read_agent_file(path, {})
    assert refused.value.message.startswith(f"{path} ")
    assert reason in refused.value.message
    assert refused.value.kind == "bad-agent-file"


@pytest.mark.parametrize(
    ("given_props", "kind", "reason"),
    [
        ({}, "missing-prop", "asks for the prop 'topic'"),
        ({"topic": "x", "topc": "y"}, "usage", "asks for no prop 'topc'"),
    ],
)
def test_a_prop_that_is_missing_or_asked_for_by_nothing_is_named(
    write: Callable[[str], Path], given_props: dict[str, str], kind: str, reason: str
) -> None:
    """A misspelt one is both."""
    path = write('system = "about {{topic}}"')
    with pytest.raises(UsageError) as refused:
        read_agent_file(path, given_props)
    assert (refused.value.kind, reason in refused.value.message) == (kind, True)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    """By name, without a traceback."""
    with pytest.raises(UsageError, match="cannot read"):
        read_agent_file(tmp_path / "none.toml", {})
    (tmp_path / "latin.toml").write_bytes(b'system = "\xe9"')
    with pytest.raises(AgentsdirError, match=r"latin\.toml is not TOML"):
        read_agent_file(tmp_path / "latin.toml", {})


def test_the_agent_file_in_the_documents_is_one(write: Callable[[str], Path]) -> None:
    """As it stands there."""
    text = (Path(__file__).parents[2] / "docs/behaviour.md").read_text()
    (shown,) = re.findall(r"```toml\n(provider.*?)```", text, re.DOTALL)
    read = read_agent_file(write(shown), {"topic": "foxes"})
    assert (read.system, read.prompt) == ("You look for sources about foxes.", "Find 3 of them.")
