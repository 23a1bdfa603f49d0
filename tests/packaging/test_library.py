"""The names of the library are there at run time, and for type checkers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import agentsdir

ROOT = Path(__file__).parents[2]


def names_for_checkers() -> dict[str, str]:
    """Return the names that the package imports for type checkers, with their modules."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = (one for one in tree.body if ast.unparse(one).startswith("if TYPE_CHECKING:"))
    return {
        str(alias.asname): str(one.module).removeprefix("agentsdir.")
        for one in ast.walk(block)
        if isinstance(one, ast.ImportFrom) and str(one.module).startswith("agentsdir.")
        for alias in one.names
    }


def test_a_type_checker_sees_each_name_that_a_program_can_import() -> None:
    """What is imported when it is first used is typed, and not `Any`."""
    assert names_for_checkers() == agentsdir._HOMES
    assert [name for name in agentsdir.__all__ if getattr(agentsdir, name, None) is None] == []


def test_each_name_stands_on_the_page_of_the_library() -> None:
    """What can be imported is explained there, or named for annotations."""
    page = (ROOT / "docs/library.md").read_text()
    assert [name for name in agentsdir.__all__ if not re.search(rf"\b{name}\b", page)] == []
