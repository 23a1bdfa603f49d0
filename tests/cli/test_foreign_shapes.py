"""Whatever shape a client's file has, and whatever stands in its place, no command breaks on it.

Each row of a fixture in turn loses a key, has one of another type, elsewhere, twice, or deeper; the
file is then read by every command that reads foreign files. Nothing may raise, and the other
session of the store is there as before.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[2] / "fixtures"
EXPECTED = (".blocks.jsonl", ".all.jsonl")
TRANSCRIPTS = {
    client: [
        path
        for folder, pattern in ((FIXTURES / client, "*.json*"), (FIXTURES / "interactive", inner))
        for path in sorted(folder.glob(pattern))
        if not path.name.endswith(EXPECTED)
    ]
    for client, inner in (
        ("claude", "*/*/tree/home/.claude/projects/*/*.jsonl"),
        ("gemini", "*/*/tree/home/.gemini/tmp/*/chats/*.jsonl"),
    )
}
NAMES = {"claude": "projects/-w/{}.jsonl", "gemini": "tmp/w/chats/session-2026-01-02T03-04-{}{}"}
SPOILED, SOUND = "0000000b-0000-4000-8000-00000000000b", "0000000c-0000-4000-8000-00000000000c"
REFUSALS = {0, 1, 2, 3, 10, 12, 13}
"""Exit codes of a command that did what it could, or said what is wrong."""

OTHER_TYPES: list[Any] = [None, True, 0, -1.5, 2**70, "", "x", [], {}, [None], {"x": []}, [[["y"]]]]
DEEP: Any = "bottom"
for _ in range(40):
    DEEP = {"message": [DEEP]}


def rows_of(path: Path) -> list[Any]:
    """Return the rows of a transcript; a whole document is one."""
    data = path.read_bytes()
    if path.suffix == ".json":
        try:
            return [orjson.loads(data)]
        except orjson.JSONDecodeError:
            return []
    rows = []
    for line in data.split(b"\n"):
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return [row for row in rows if isinstance(row, dict)]


def places_in(value: Any, depth: int = 3) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a row, some levels down, with each of its keys."""
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value[:3]))
    for key, inner in entries:
        yield value, key
        if depth:
            yield from places_in(inner, depth - 1)


def spoil(rows: list[Any], data: st.DataObject) -> list[Any]:
    """Return the rows with one of them in another shape, or in another place."""
    rows = copy.deepcopy(rows)
    at = data.draw(st.integers(0, len(rows) - 1), label="row")
    how = data.draw(
        st.sampled_from(["drop", "retype", "deepen", "first", "double", "alone", "bare"]),
        label="how",
    )
    row = rows[at]
    if how in ("drop", "retype", "deepen"):
        places = list(places_in(row))
        if not places:
            return rows
        holder, key = places[data.draw(st.integers(0, len(places) - 1), label="place")]
        if how == "drop":
            del holder[key]
        elif how == "retype":
            holder[key] = data.draw(st.sampled_from(OTHER_TYPES), label="value")
        else:
            holder[key] = {
                "message": [holder[key], DEEP],
                key if isinstance(key, str) else "k": DEEP,
            }
    elif how == "first":
        rows.insert(0, rows.pop(at))
    elif how == "double":
        rows.insert(at, copy.deepcopy(row))
    elif how == "alone":
        return [row]
    else:
        rows[at] = data.draw(st.sampled_from(OTHER_TYPES), label="value")
    return rows


def written(rows: list[Any], path: Path) -> None:
    """Write rows as a transcript, or as a document if its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps(_small(row)) for row in rows]
    path.write_bytes(b"\n".join(lines) + b"\n" * (path.suffix == ".jsonl"))


def _small(value: Any) -> Any:
    """Return a value that orjson writes: the number beyond 64 bits becomes a float."""
    if isinstance(value, dict):
        return {str(key): _small(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_small(inner) for inner in value]
    return float(value) if isinstance(value, int) and abs(value) > 2**63 else value


def place(shell: Any, client: str, name: str, suffix: str) -> Path:
    """Return where a session's file stands in the client's store of this user."""
    store: Path = shell.home / f".{client}"
    if client == "gemini":
        (store / "tmp" / "w" / "chats").mkdir(parents=True, exist_ok=True)
        (store / "tmp" / "w" / ".project_root").write_text(str(shell.cwd))
        return store / NAMES[client].format(name[:8], suffix)
    return store / NAMES[client].format(name)


def sound_session(shell: Any, client: str) -> Path:
    """Put a session into the store that nothing is wrong with."""
    path = place(shell, client, SOUND, ".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = "hello-2.1.98.jsonl" if client == "claude" else "era-0.61-tools.jsonl"
    data = (FIXTURES / client / source).read_bytes()
    path.write_bytes(data)
    return path


def commands_on(shell: Any, spoiled: Path) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Run every command that reads foreign files; yield its words and what it left."""
    store = shell.home / spoiled.relative_to(shell.home).parts[0]
    report = str(shell.cwd / "report.json")
    for words in (
        ("parse", "--view", "all", "--hidden", "--report", report, str(spoiled)),
        ("parse", str(store)),
        ("list", "--native"),
        ("list", "--native", str(store)),
        ("follow", "--until-idle", "0", "--events", str(spoiled)),
        ("new", "--from", str(spoiled), "--cwd", str(shell.cwd), "--json"),
    ):
        done = shell(*words)
        yield words, done
        if words[0] == "new" and done.code in (0, 3) and done.out:
            agent = orjson.loads(done.out.splitlines()[0])["agentId"]
            bundle = str(shell.cwd / "bundle.tar")
            for verb in (
                ("replay", "--events", agent),
                ("replay", agent),
                ("validate", agent),
                ("export", "--bundle", agent, bundle),
                ("rm", "--yes", agent),
                ("import", bundle, "--cwd", str(shell.cwd)),
                ("rm", "--yes", agent),
            ):
                yield verb, shell(*verb)
            Path(bundle).unlink(missing_ok=True)


def check(shell: Any, spoiled: Path, sound: Path) -> None:
    """Hold all commands to it that they end as they may, and list the sound session."""
    for words, done in commands_on(shell, spoiled):
        assert done.code in REFUSALS, (words, done)
        assert "Traceback" not in done.err, (words, done)
        assert "Internal error" not in done.err, (words, done)
        if words[:2] == ("list", "--native"):
            assert [row["file"] for row in done.rows].count(str(sound)) == 1, done


@pytest.mark.parametrize("client", ["claude", "gemini"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_row_of_any_shape_breaks_no_command(shell: Any, client: str, data: st.DataObject) -> None:
    """Nor takes the session beside it down."""
    sources = [path for path in TRANSCRIPTS[client] if rows_of(path)]
    source = data.draw(st.sampled_from(sources), label="fixture")
    spoiled = place(shell, client, SPOILED, source.suffix)
    sound = sound_session(shell, client)
    for other in (".json", ".jsonl"):
        spoiled.with_suffix(other).unlink(missing_ok=True)
    written(spoil(rows_of(source), data), spoiled)
    check(shell, spoiled, sound)


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _unreadable(path: Path) -> None:
    path.write_bytes(b'{"type":"user"}\n')
    path.chmod(0)


def _empty(path: Path) -> None:
    path.touch()


def _binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 300)


@pytest.mark.parametrize("client", ["claude", "gemini"])
@pytest.mark.parametrize(
    "put",
    [_folder, _loop, _dangling, _unreadable, _empty, _binary, os.mkfifo],
    ids=lambda f: f.__name__,
)
def test_what_stands_in_a_files_place_breaks_no_command(
    shell: Any, client: str, put: Callable[[Path], None]
) -> None:
    """A FIFO that is named is read, and none is ever waited for that was only found."""
    spoiled = place(shell, client, SPOILED, ".jsonl")
    sound = sound_session(shell, client)
    put(spoiled)
    if put is os.mkfifo:
        done = shell("list", "--native")
        assert [row["file"] for row in done.rows].count(str(sound)) == 1
        assert shell("parse", str(shell.home / f".{client}")).code in REFUSALS
        return
    check(shell, spoiled, sound)


@pytest.mark.parametrize(
    ("client", "fixture"),
    [
        pytest.param(client, path, id=path.name)
        for client, paths in TRANSCRIPTS.items()
        for path in paths
    ],
)
def test_each_row_of_a_fixture_may_be_the_first(shell: Any, client: str, fixture: Path) -> None:
    """The list of the store has the session beside it all the same."""
    sound = sound_session(shell, client)
    spoiled = place(shell, client, SPOILED, fixture.suffix)
    rows = rows_of(fixture)
    for at in range(len(rows)):
        written([rows[at], *rows[:at], *rows[at + 1 :]], spoiled)
        done = shell("list", "--native")
        assert done.code in (0, 3), done
        assert [row["file"] for row in done.rows].count(str(sound)) == 1
