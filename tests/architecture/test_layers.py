"""Imports go one way, and import-linter really sees every module that could break that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
CONTRACTS = 7

# One offence against each contract, in the order of pyproject.toml.
OFFENCES = {
    "schemas/__init__.py": "import agentsdir.formats.errors",
    "adapters/registry.py": "import agentsdir.formats.store.layout",
    "engine/inbox.py": "import agentsdir.engine.turn",
    "engine/app/component.py": "import agentsdir.engine.app.session",
    "formats/rows.py": "import agentsdir.formats.store.layout",
    "formats/store/layout.py": "import agentsdir.formats.store.agent",
    "adapters/claude/__init__.py": "import agentsdir.adapters.gemini",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the packages under the name they are installed as."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "agentsdir" / name, ignore=ignored)
    shutil.copy(ROOT / "__init__.py", tmp_path / "agentsdir")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy, which stands before any installed agentsdir."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_contract_is_kept_by_every_module(tree: Path) -> None:
    """The linter analyses exactly the modules on disk and finds nothing."""
    result = lint(tree)

    modules = sum(1 for _ in (tree / "agentsdir").rglob("*.py"))
    assert f"Contracts: {CONTRACTS} kept, 0 broken." in result.stdout, result.stdout
    assert re.search(r"Analyzed (\d+) files", result.stdout)[1] == str(modules)
    assert result.returncode == 0


def test_an_offence_against_each_contract_is_found(tree: Path) -> None:
    """The linter names the module of every offence, so the test above can fail."""
    for name, offence in OFFENCES.items():
        with (tree / "agentsdir" / name).open("a") as module:
            module.write(f"\n{offence}\n")

    result = lint(tree)

    assert f"Contracts: 0 kept, {CONTRACTS} broken." in result.stdout, result.stdout
    for name in OFFENCES:
        module = "agentsdir." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert module in result.stdout
    assert result.returncode == 1
