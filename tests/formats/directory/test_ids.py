"""The id grammar, and what it keeps out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import ids
from agentsdir.formats.errors import NoSuchAgent, UsageError

HOSTILE: dict[str, str] = json.loads(
    (Path(__file__).parents[1] / "hostile_ids.json").read_text(encoding="utf-8")
)


def test_the_table_of_hostile_ids_is_long_enough_to_mean_something() -> None:
    """At least forty, all different."""
    assert len(set(HOSTILE.values())) == len(HOSTILE) >= 40


def test_no_hostile_id_is_an_id_or_makes_a_path(agents: Any) -> None:
    """The grammar refuses each, with a kind of its own, in printable text; nothing is made."""
    agents.publish()
    before = sorted(os.walk(agents.layout.root.parent))
    for name, text in HOSTILE.items():
        assert not ids.is_agent_id(text), name
        for refuse in (ids.check_agent_id, agents.layout.agent):
            with pytest.raises(UsageError) as refused:
                refuse(text)
            assert refused.value.kind == "bad-id", name
            assert refused.value.message.isprintable(), name
    assert sorted(os.walk(agents.layout.root.parent)) == before


@given(st.text(st.sampled_from("az09AZ./-_\0\n٣ü"), min_size=20, max_size=36))
def test_an_agent_id_is_lower_case_letters_and_digits_only(text: str) -> None:
    """Of the right length, and nothing else whatever Unicode calls it."""
    plain = 24 <= len(text) <= 32 and set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789")
    assert ids.is_agent_id(text) == plain


@given(st.uuids())
def test_a_session_id_survives_dashing_and_undashing(uuid: Any) -> None:
    """Both spellings mean the same, also in upper case."""
    assert ids.is_session_id(uuid.hex)
    assert ids.dashed(uuid.hex) == str(uuid)
    assert ids.undashed(str(uuid)) == uuid.hex
    assert ids.undashed(str(uuid).upper()) == uuid.hex
    assert not ids.is_session_id(str(uuid))


@pytest.mark.parametrize("text", ["", "abc", "my-agent", "-" * 36, "g" * 36, "a" * 32])
def test_what_is_no_dashed_uuid_is_left_alone(text: str) -> None:
    """Names with dashes keep them."""
    assert ids.undashed(text) == text


@pytest.mark.parametrize("name", ["a", "my agent", "héllo", "a-b", "x@y", "..", "1", "n" * 128])
def test_a_name_is_anything_printable(name: str) -> None:
    """Spaces and accents included: a name never becomes a path."""
    assert ids.check_name(name) == name


NO_NAMES = [
    *("", " a", "\ta", "-a", "--json", "@a", "a/b", "a\nb", "a\0", "a\x7f", "a\x1b[0m"),
    *("\u202ea", "a\u2028b", "\ud800", "n" * 129),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_could_be_mistaken_is_no_name(name: str) -> None:
    """Options, references, paths and control characters are refused with a kind of their own."""
    with pytest.raises(UsageError) as refused:
        ids.check_name(name)
    assert refused.value.kind == "bad-name"
    assert refused.value.message.isprintable()


def test_a_well_formed_id_that_no_agent_has_is_no_such_agent(agents: Any) -> None:
    """That is another error than a malformed one."""
    with pytest.raises(NoSuchAgent):
        agents.layout.agent("a" * 24)
