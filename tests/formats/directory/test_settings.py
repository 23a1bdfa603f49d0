"""settings.toml: lines of the plainest kind are read without the library for all others."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.directory.settings import plain_settings

PLAIN = """# how it is written
durability = "never"

  max_slots=12
idle_timeout = 0
provider = ""
"""
PIECES = [
    "a",
    "b",
    "_1",
    "9",
    " ",
    "=",
    '"',
    "\\",
    "#",
    "[",
    "]",
    "\n",
    "\t",
    "\r",
    "é",
    ".",
    "'",
    "-",
    "0",
]


def test_what_most_files_have_is_read_without_the_library() -> None:
    """Texts and whole numbers, and comments of their own."""
    assert plain_settings(PLAIN) == tomllib.loads(PLAIN)


@given(
    st.lists(st.sampled_from([*PIECES, 'a = "b"', "b = 4", "\n", "# c"]), max_size=12).map("".join)
)
def test_whatever_is_read_so_is_what_toml_says(text: str) -> None:
    """What is no TOML, or might be anything else, is left to the library."""
    found = plain_settings(text)
    if found is not None:
        assert found == tomllib.loads(text)


@pytest.mark.parametrize(
    "text",
    ['a = "b" # c', "a = 1.5", "a = 01", "a = 1_0", "a = -1", "[a]", "a.b = 1", "a = 'b'",
     '"a" = 1',
     'a = "\\n"', "a = 1\na = 2", "a =", "= 1", "a", "a = true", "a = 9999999999999999"],
)  # fmt: skip
def test_all_else_is_left_to_the_library(text: str) -> None:
    """Or refused by it."""
    assert plain_settings(text) is None
