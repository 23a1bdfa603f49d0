"""docs/architecture.md shows the modules that there are, and the ways that a run really takes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from probing import probed

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "engine", "adapters", "formats", "schemas")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = {
    path.relative_to(ROOT).with_suffix("").as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"
}

# Runs one command line, and prints which modules called a function of which other module of ours.
PROBE = """
import json, os, sys
arguments = sys.argv[1:]
layers = ("cli", "engine", "adapters", "formats", "schemas")
import agentsdir.cli.main as entry
root = os.path.dirname(os.path.dirname(entry.__file__))
passed = []

def module_of(code):
    name = os.path.relpath(code.co_filename, root)
    return name[:-3] if name.split(os.sep)[0] in layers else None

known = {}
def see(frame, event, _value):
    code = frame.f_code
    if event != "call":
        return
    if code not in known:
        known[code] = module_of(code)
    if known[code] is None or known[code] in passed:
        return
    caller = frame
    while caller is not None:  # what an import runs is no step of the way
        if caller.f_code.co_name == "<module>" and module_of(caller.f_code) is not None:
            return
        caller = caller.f_back
    passed.append(known[code])

def leave(code):
    sys.setprofile(None)
    print(json.dumps({"code": code, "passed": passed}), file=sys.stderr)
    leave_now(code)

leave_now, os._exit = os._exit, leave
sys.argv = ["agentsdir", *arguments]
sys.setprofile(see)
entry.main()
"""


def picture() -> dict[str, dict[str, list[str]]]:
    """Return folder → label of a line → modules, as the page's picture has them."""
    fence = re.search(r"^## The picture$.*?^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert fence is not None
    shown: dict[str, dict[str, list[str]]] = {}
    folder = ""
    for line in fence[1].splitlines():
        if re.match(r"\w+/", line):
            folder = line.partition("/")[0]
            layer = folder
        elif re.match(r"  \w+/", line):
            folder = f"{layer}/{line.strip().partition('/')[0]}"
        elif line.strip():
            label, names = line[:17].strip(), line[17:]
            shown.setdefault(folder, {}).setdefault(label, []).extend(names.split())
    return shown


def passed_by(arguments: list[str], home: Path) -> set[str]:
    """Run a command in a new process, which must succeed; return the modules that it passed."""
    _, report = probed(PROBE, arguments, home)
    return set(report["passed"])


def named_in(heading: str) -> set[str]:
    """Return the modules that the numbered steps of a section name."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    steps = "".join(re.findall(r"^\d+\. .*\n(?:   .*\n)*", section, re.MULTILINE))
    return {name for name in re.findall(r"`([\w/]+)`", steps) if name.split("/")[0] in PACKAGES}


def test_the_picture_has_every_module_once() -> None:
    """And none that is not there; the modules of subcommands have a table of their own."""
    shown = [
        f"{folder}/{name}"
        for folder, lines in picture().items()
        for names in lines.values()
        for name in names
    ]
    wanted = {name for name in MODULES if not name.startswith("cli/commands/")}
    assert sorted(wanted - set(shown)) == []
    assert sorted(set(shown) - wanted) == []
    assert len(shown) == len(wanted)


@pytest.mark.parametrize("package", ["engine", "formats", "formats/store"])
def test_the_floors_are_those_that_the_linter_holds(package: str) -> None:
    """A floor of the picture is a layer of the contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    container = "agentsdir." + package.replace("/", ".")
    contracts = settings["tool"]["importlinter"]["contracts"]
    held = next(one["layers"] for one in contracts if one.get("containers") == [container])

    folders = {path.name for path in (ROOT / package).iterdir() if path.is_dir()}
    wanted = {
        str(number): {name for name in layer.split(" | ") if name not in folders}
        for number, layer in enumerate(reversed(held), start=1)
    }
    shown = {floor: set(names) for floor, names in picture()[package].items()}
    assert shown == {floor: names for floor, names in wanted.items() if names}


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_every_module_that_a_document_names_exists(path: Path) -> None:
    """As `engine/turn` or `agentsdir.engine.turn`, or a folder of modules."""
    text = path.read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`([\w/]+/\w+)`", text) if name.split("/")[0] in PACKAGES}
    dotted = re.findall(r"agentsdir((?:\.(?:cli|engine|adapters|formats|schemas))(?:\.\w+)*)", text)
    named |= {name.strip(".").replace(".", "/") for name in dotted}
    folders = {module.rpartition("/")[0] for module in MODULES}
    assert sorted(named - folders - MODULES) == []


@pytest.mark.parametrize(
    ("heading", "arguments"),
    [
        ("A prompt", ["send", "it", "hi"]),
        ("A row", ["parse", str(ROOT / "fixtures" / "claude" / "hello-2.1.98.jsonl")]),
    ],
)
def test_a_run_takes_the_way_that_the_page_tells(
    heading: str, arguments: list[str], tmp_path: Path
) -> None:
    """Of `cli`, `engine` and `adapters` it passes what the steps name; of `formats`, at least."""
    passed_by(["new", "--name", "it"], tmp_path)
    passed_by(["send", "it", "first"], tmp_path)
    passed, named = passed_by(arguments, tmp_path), named_in(heading)

    assert sorted(named - passed) == []
    layers = ("cli", "engine", "adapters")
    assert sorted(name for name in passed - named if name.split("/")[0] in layers) == []
