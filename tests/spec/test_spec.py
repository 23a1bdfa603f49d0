"""SPEC.md is law: what it shows validates, and what it lists is what the code has. So do docs/."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from agentsdir import schemas
from agentsdir.cli.command_line import COMMANDS
from agentsdir.cli.exits import Exit
from agentsdir.formats.blocks import BLOCKS, EVENT_TYPES
from agentsdir.formats.findings import FINDINGS
from agentsdir.formats.store.events import EVENTS
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.settings import Settings
from agentsdir.formats.store.state import TRANSITIONS, SessionState
from agentsdir.schemas.catalogue import kinds

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "SPEC.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").rglob("*.md"))
}


FENCE = re.compile(r"^```(json\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _examples(text: str) -> list[tuple[str, str]]:
    """Return (kind, JSON text) of each example: a `jsonl` fence has one on each line.

    In a fence with `schema=event-*` the event of each line names its kind, which is that of `data`.
    """
    found = []
    for language, info, body in FENCE.findall(text):
        kind = "".join(re.findall(r"schema=(\S+)", info))
        for each in body.splitlines() if language == "jsonl" else [body]:
            if kind == "event-*":
                record = orjson.loads(each)
                name = "event-" + record["event"].replace(".", "-")
                found.append((name, orjson.dumps(record["data"]).decode()))
            else:
                found.append((kind, each))
    return found


EXAMPLES = _examples(SPEC)
SHOWN = [
    pytest.param(kind, text, id=f"{name}-{number}-{kind}")
    for name, page in {"SPEC.md": SPEC, **PAGES}.items()
    for number, (kind, text) in enumerate(_examples(page))
]


@pytest.mark.feature("C-15", "C-09")
@pytest.mark.parametrize(("kind", "text"), SHOWN)
def test_every_example_in_the_documents_is_valid(kind: str, text: str) -> None:
    """A JSON fence names its schema, and its content validates against it."""
    assert kind, f"a JSON fence without schema=: {text[:60]}"
    assert schemas.check(kind, orjson.loads(text)) == []


@pytest.mark.feature("C-15")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_documents(command: str) -> None:
    """By its name, as code."""
    assert re.search(rf"`(agentsdir )?{command}[ `]", "".join(PAGES.values()))


@pytest.mark.feature("C-15")
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_has_a_section_and_an_example(event: str) -> None:
    """No event is written that the spec does not show."""
    assert f"event-{event.replace('.', '-')}" in {kind for kind, _ in EXAMPLES}


EFFECTS = re.findall(
    r"^\| `([a-z.]+)` \| (.*?) \| .* \|$",
    SPEC.split("\n## Events")[1].split("\n### ")[0],
    re.MULTILINE,
)


def test_the_table_of_events_has_each_event_once() -> None:
    """It is the definition of the fold."""
    assert sorted(event for event, _ in EFFECTS) == sorted(EVENTS)


@pytest.mark.parametrize(("event", "fields"), EFFECTS)
def test_the_table_of_events_has_the_fields_of_the_schema(event: str, fields: str) -> None:
    """All of them; `?` marks those that may be left out, `|null` those that may be null."""
    schema = ROOT / "schemas" / "v1" / f"event-{event.replace('.', '-')}.schema.json"
    wanted = orjson.loads(schema.read_bytes())
    said = re.findall(r"`([A-Za-z0-9_]+)(\?)?(\\\|null)?`", re.sub(r"\([^)]*\)", "", fields))
    for name, optional, null in said:
        assert name in wanted["properties"], name
        assert (name not in wanted.get("required", ())) == bool(optional), name
        assert ("null" in wanted["properties"][name].get("type", ())) == bool(null), name
    assert {name for name, _, _ in said} == set(wanted["properties"])


def test_the_table_of_events_marks_the_fields_that_a_fold_needs() -> None:
    """In bold; the text below names those that are no strings, by type."""
    text = SPEC.split("\n## Events")[1].split("In them are needed")[0]
    kinds = {"an integer": int, "objects": dict, "lists": list}
    types: dict[str, type] = {}
    for names, kind in re.findall(r"((?:`\w+`(?:, | and )?)+)\s(?:is|are)\s([a-z ]+);", text):
        types |= dict.fromkeys(re.findall(r"`(\w+)`", names), kinds[kind])
    assert {*types.values()} == {*kinds.values()}
    for event, fields in EFFECTS:
        marked = re.findall(r"\*\*`(\w+)`\*\*", fields)
        assert {name: types.get(name, str) for name in marked} == EVENTS[event].needs, event


def test_the_files_of_the_golden_agent_are_shown_as_they_are() -> None:
    """Its log and what is derived from it, to the byte."""
    shown = re.findall(r"^```json\w* \S+ file=(\S+)\n(.*?)^```$", SPEC, re.MULTILINE | re.DOTALL)
    assert {Path(file).name for file, _ in shown} >= {"events.jsonl", "state.json", "history.jsonl"}
    for file, body in shown:
        assert body == (ROOT / file).read_text(encoding="utf-8"), file


def test_the_spec_is_short() -> None:
    """What another program needs, in an afternoon's reading; the rest is in docs/."""
    assert len(SPEC.split()) <= 8900


@pytest.mark.parametrize("block_type", BLOCKS)
def test_every_block_type_has_an_example(block_type: str) -> None:
    """The seven blocks are shown."""
    shown = {orjson.loads(text)["type"] for kind, text in EXAMPLES if kind == "block"}
    assert block_type in shown


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_stream_event_has_an_example(event_type: str) -> None:
    """The five stream events are shown."""
    shown = {orjson.loads(text)["type"] for kind, text in EXAMPLES if kind == "stream-event"}
    assert event_type in shown


def _table(name: str, text: str = SPEC) -> list[tuple[str, ...]]:
    block = text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in block.strip().splitlines()[2:]]
    return [tuple(cell.strip(" `") for cell in row) for row in rows]


def test_the_tables_of_findings_are_what_the_program_can_say() -> None:
    """Every id that can be reported is documented once, with severity and meaning, and vice versa.

    Those of a log in SPEC.md, those of transcripts alone in docs/reading.md, those that only
    `validate` finds in docs/operations.md; each table is sorted.
    """
    tables = [
        _table("findings"),
        _table("findings", PAGES["docs/reading.md"]),
        _table("problems", PAGES["docs/operations.md"]),
    ]
    wanted = [(name, severity, meaning) for name, (severity, meaning) in sorted(FINDINGS.items())]
    assert sorted(row for table in tables for row in table) == wanted
    assert tables == [sorted(table) for table in tables]


def test_the_exit_code_table_is_the_enum() -> None:
    """Exit codes and their names are those of the code, each once."""
    section = PAGES["docs/commands.md"].split("## Exit codes")[1]
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", section, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(int(e), e.name) for e in Exit]
    assert len({int(e) for e in Exit}) == len(Exit)


def test_the_settings_table_is_what_settings_toml_takes() -> None:
    """Each key of a root's settings.toml with its default, and no other."""
    section = PAGES["docs/configuration.md"].split("## Settings")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", section, re.MULTILINE)
    shown = {name: orjson.loads(default) for name, default in rows}
    known = Settings()._asdict()
    del known["unknown"]  # which keys the program does not take
    assert shown == orjson.loads(orjson.dumps(known))


def test_every_json_output_names_a_schema() -> None:
    """The table of outputs names schemas that are there."""
    section = PAGES["docs/commands.md"].split("## JSON output")[1].split("```")[0]
    rows = [row.strip("| ").split(" | ")[1] for row in section.splitlines() if row[:3] == "| `"]
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert len(named) > 20
    assert set(named) <= set(kinds())


@pytest.mark.feature("S-01")
def test_the_state_table_is_the_state_machine() -> None:
    """The transitions in "Sessions and turns" are the ones the code allows."""
    section = SPEC.split("### Sessions and turns")[1]
    rows = dict(re.findall(r"^\| (\w+) \| ([\w, ]*) ?\|$", section, re.MULTILINE))
    for state in SessionState:
        allowed = [name for name in rows[state.value].replace(" ", "").split(",") if name]
        assert allowed == [new.value for new in TRANSITIONS[state]]


def test_the_layout_has_an_entry_for_each_path() -> None:
    """Each file that the code names stands in the tree and is described."""
    section = SPEC.split("\n## Layout")[1].split("\n## ")[0]
    layout, agent = Layout(Path("ROOT")), AgentPaths(Path("AGENT"), "x")
    files = [
        layout.document,
        layout.settings,
        layout.create_lock,
        agent.descriptor,
        agent.session,
        agent.state,
    ]
    files += [agent.history, agent.log, agent.transcripts, agent.lock, agent.turn]
    for path in files:
        assert path.name in section.split("```")[1], path
        assert re.search(rf"\*\*`{re.escape(path.name)}/?`\*\*", section), path


def test_every_section_that_code_names_exists() -> None:
    """A docstring that points into a document points at a heading or a bold lead that is there."""
    known = {name: _places(text) for name, text in {"SPEC.md": SPEC, **PAGES}.items()}
    cited = re.compile(r'\b(SPEC\.md|docs/[a-z/]+\.md),\s+"([^"]+)"')
    for folder in ("cli", "engine", "adapters", "formats", "schemas", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"SPEC\.md,? (in )?sections? [0-9]", text), (
                f"{path}: by its heading"
            )
            for page, name in cited.findall(re.sub(r"\n *# ?", "\n", text)):
                assert " ".join(name.lower().split()) in known[page], (
                    f"{path}: {page} has no {name!r}"
                )


def _places(text: str) -> str:
    places = re.findall(r"^#+ (.*)$|\*\*([^*]+)\*\*", text, re.MULTILINE)
    return " · ".join(heading + bold for heading, bold in places).lower()


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_documents_leads_somewhere() -> None:
    """To a file that is there and, with a `#`, to one of its headings."""
    documents = [ROOT / "README.md", ROOT / "SPEC.md", ROOT / "DECISIONS.md"]
    for path in [*documents, *(ROOT / name for name in PAGES)]:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", path.read_text("utf-8")):
            if "://" in target:
                continue
            page = (path.parent / target) if target else path
            assert page.exists(), f"{path}: {target}"
            assert not anchor or anchor in _anchors(page.read_text("utf-8")), f"{path}: {anchor}"


@pytest.mark.parametrize("name", ["SPEC.md", "README.md", "DECISIONS.md", *PAGES])
def test_a_document_names_who_acts(name: str) -> None:
    """A process, a reader, a client or you; never a person without a name."""
    words = re.findall(
        r"(?i)\b(?:who(?:m)?ever|nobody|somebody)\b", (ROOT / name).read_text("utf-8")
    )
    assert words == []


def test_every_decision_that_code_cites_is_written_down() -> None:
    """A reader who meets D23 finds out what it says."""
    table = (ROOT / "DECISIONS.md").read_text(encoding="utf-8")
    written = set(re.findall(r"^\| (D\d+) \|", table, re.MULTILINE))
    for folder in ("cli", "engine", "adapters", "formats", "schemas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            cited = set(re.findall(r"\bD\d{1,2}\b", path.read_text(encoding="utf-8")))
            assert cited <= written, path
