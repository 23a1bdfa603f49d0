"""A document of `inspect --saved` may come from anywhere, as a bundle may."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers import CHANGES, NAMES, Change, Place

from agentsdir.cli.output import document_pieces
from agentsdir.formats.errors import Invalid
from agentsdir.formats.source import Pieces, Source
from agentsdir.formats.store.bundles import Limits
from agentsdir.formats.store.saved_files import file_entries, unpack_document

Document = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a place of its own."""
    (tmp_path / "work").mkdir()
    return Place(tmp_path / "work")


def document(agent: str, found: dict[str, bytes]) -> Document:
    """Return the document of these files."""
    files = [{"path": path, "text": data.decode()} for path, data in found.items()]
    return {"agentId": agent, "rawTranscript": "x", "files": files}


def refuses(place: Place, value: Document | bytes) -> str:
    """Import a document that must be refused without a trace; return the error's message."""
    return place.refuses(value if isinstance(value, bytes) else orjson.dumps(value))


def test_an_honest_document_is_taken(place: Place) -> None:
    """The same files, unchanged: so it is the change that is refused below."""
    agent, found = place.bundle()
    (place.folder / "honest").write_bytes(orjson.dumps(document(agent, found)))

    assert place("import", "honest")[:2] == (0, f"{agent}\n")


@pytest.mark.parametrize("change", CHANGES)
def test_a_document_that_is_not_sound_is_refused(place: Place, change: Change) -> None:
    """Whole and before anything is made of it; what is true of a tar is true of it."""
    agent, found = place.bundle()
    refuses(place, document(agent, change(agent, found)))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_cannot_lead_out(place: Place, name: str) -> None:
    """Absolute, with two dots, unprintable, too long or too deep."""
    agent, found = place.bundle()
    refuses(place, document(agent, {**found, name: b"x"}))


TWINS = [
    ("agents/x/é", "agents/x/e\u0301"), ("agents/x/A", "agents/x/a"), ("agents/X/a", "agents/x/a"),
    ("agents/x/straße", "agents/x/STRASSE"), ("agents/x/a", "agents/x/a"), ("a", "a/b"),
    ("a/b", "a"), ("a", "a/"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_no_place_is_named_twice(place: Place, one: str, other: str) -> None:
    """Nor in another case or form of Unicode, which many systems take for the same."""
    agent, found = place.bundle()
    value = document(agent, found)
    value["files"] += [{"path": path, "text": "x"} for path in (one, other)]
    refuses(place, value)


def changed(change: Callable[[Document], Any]) -> Callable[[Document], bytes]:
    """Return what writes a document that was changed."""

    def written(value: Document) -> bytes:
        change(value)
        return orjson.dumps(value)

    return written


def first(value: Document, **fields: Any) -> None:
    """Replace the first file by one of these fields."""
    value["files"][0] = fields


ODD: dict[str, Callable[[Document], bytes]] = {
    "another agent": changed(lambda value: value.update(agentId="b" * 24)),
    "no agent": changed(lambda value: value.pop("agentId")),
    "a path for an agent": changed(lambda value: value.update(agentId="../x")),
    "an agent that is no text": changed(lambda value: value.update(agentId=7)),
    "no list": changed(lambda value: value.update(files={"a": "b"})),
    "null": changed(lambda value: value.update(files=None)),
    "no objects": changed(lambda value: value.update(files=["x"])),
    "no path": changed(lambda value: first(value, text="x")),
    "no bytes": changed(lambda value: first(value, path="x")),
    "both": changed(lambda value: first(value, path="x", text="x", base64="")),
    "a number for a path": changed(lambda value: first(value, path=7, text="x")),
    "a number for bytes": changed(lambda value: first(value, path="x", text=7)),
    "a path of a megabyte": changed(lambda value: first(value, path="x" * 2**20, text="")),
    "deep": changed(lambda value: value.update(files=_nested(200))),
    "deep in what is passed over": lambda value: (
        orjson.dumps(value)[:-1] + b',"x":' + b"[" * 10**6
    ),
    "deep objects": lambda value: orjson.dumps(value)[:-1] + b',"x":' + b'{"a":' * 10**6,
    "files twice": lambda value: (
        orjson.dumps(value)[:-1] + b',"files":' + orjson.dumps(value["files"]) + b"}"
    ),
    "agentId twice": lambda value: orjson.dumps(value)[:-1] + b',"agentId":"x"}',
    "path twice": lambda value: orjson.dumps(value).replace(b'{"path"', b'{"path":"x","path"', 1),
    "text twice": lambda value: orjson.dumps(value).replace(b'"text"', b'"text":"","text"', 1),
    "two documents": lambda value: orjson.dumps(value) * 2,
    "a comma": lambda value: orjson.dumps(value)[:-1] + b",}",
    "a constant": lambda value: orjson.dumps(value)[:-1] + b',"x":NaN}',
    "no UTF-8": lambda value: orjson.dumps(value)[:-1] + b',"x":"\xff"}',
    "half a pair": lambda value: orjson.dumps(value)[:-1] + b',"x":"\\ud800"}',
    "UTF-16": lambda value: orjson.dumps(value).decode().encode("utf-16"),
}  # fmt: skip


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_such_document_is_refused(place: Place, odd: str) -> None:
    """With the reason, and no traceback."""
    agent, found = place.bundle()
    refuses(place, ODD[odd](document(agent, found)))


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AA",
        "AAA",
        "A===",
        "AA=A",
        "AA==AA==",
        "A A=",
        "AA==\n",
        "AAé=",
        "====",
        "_-==",
        "AAAA=",
    ],
)  # fmt: skip
def test_damaged_base64_is_refused(place: Place, text: str) -> None:
    """Nothing is guessed: no white space, no other alphabet, nothing after its end."""
    agent, found = place.bundle()
    value = document(agent, found)
    value["files"].append({"path": "agents/x", "base64": text})
    assert "base64" in refuses(place, value)


def test_a_document_that_is_cut_is_refused(place: Place) -> None:
    """Wherever it is cut, and nothing of it is left."""
    agent, found = place.bundle()
    whole = orjson.dumps(document(agent, found))
    for end in [*range(1, 60), *range(60, len(whole) - 1, 997), len(whole) - 2, len(whole) - 1]:
        refuses(place, whole[:end])


def test_a_document_is_taken_up_to_its_limits(tmp_path: Path) -> None:
    """In bytes and in files, whichever way the bytes are written."""
    small = [{"path": f"f{number}", "text": ""} for number in range(4)]
    large: list[Any] = [{"path": "a", "text": "x" * 6}, {"path": "b", "base64": "eHh4eHg="}]
    for limits, files in (
        (Limits(entries=3), small),
        (Limits(size=10), large),
        (Limits(size=5), large[:1]),
        (Limits(size=4), large[1:]),
    ):
        into = tmp_path / f"{limits.size}-{limits.entries}"
        into.mkdir()
        with pytest.raises(Invalid) as caught:
            unpack_document(io.BytesIO(orjson.dumps({"files": files})), into, limits)
        assert caught.value.kind == "bad-bundle"


class Endless:
    """A text that has no end."""

    def __init__(self, beginning: bytes, piece: bytes) -> None:
        self._pieces = self._all(beginning, piece)
        self.passed = 0

    def _all(self, beginning: bytes, piece: bytes) -> Iterator[bytes]:
        yield beginning
        while True:
            yield piece

    def read(self, _size: int, /) -> bytes:
        """Return more."""
        found = next(self._pieces)
        self.passed += len(found)
        return found


@pytest.mark.parametrize("key", ["text", "base64"])
def test_a_text_without_end_is_left_at_the_limit(tmp_path: Path, key: str) -> None:
    """It is not waited for."""
    stream = Endless(b'{"files":[{"%b":"' % key.encode(), b"AAAA" * 1024)

    with pytest.raises(Invalid, match="more than 100000 bytes"):
        unpack_document(stream, tmp_path, Limits(size=100_000))
    assert stream.passed < 2**20


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1), st.binary() | st.text().map(str.encode)))
def test_what_a_document_carries_is_unpacked_to_the_byte(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    """Any bytes, also a few more and a few less than what is printed at a time."""
    whole = {f"agents/{'a' * 24}/{name}": data for name, data in files.items()}
    for at, size in enumerate((786_431, 786_432, 786_433, 2_000_000)):
        whole[f"agents/{'a' * 24}/long-{at}"] = ("é" * size).encode()[at % 2 :]
    value = {
        "agentId": "a" * 24,
        "files": file_entries({name: Source(name, data=data) for name, data in whole.items()}),
    }
    into = tmp_path_factory.mktemp("carried")

    unpack_document(Pieces(document_pieces(value)), into)

    assert whole == {
        path.relative_to(into).as_posix(): path.read_bytes()
        for path in into.rglob("*")
        if path.is_file()
    }


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_damaged_document_never_gives_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever byte is changed, it is unpacked below the folder, or refused."""
    whole = bytearray(
        orjson.dumps(
            {
                "agentId": "a" * 24,
                "files": [
                    {"path": f"agents/{'a' * 24}/events.jsonl", "text": "é\\\n" * 40},
                    {"base64": "AAECAw==", "path": "agents/x"},
                ],
            }
        )
    )
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    top = tmp_path_factory.mktemp("damaged")
    (top / "into").mkdir()
    with suppress(Invalid):
        unpack_document(io.BytesIO(bytes(whole)), top / "into")
    assert [path.name for path in top.iterdir()] == ["into"]


def family(place: Place) -> tuple[str, str, Document]:
    """Return an agent, one that it spawned, and the document of both."""
    parent = place("new")[1].strip()
    place("spawn", "--parent", parent, "count")
    value = orjson.loads(place("inspect", "--saved", parent)[1])
    ids = {file["path"].split("/")[1] for file in value["files"] if "/" in file["path"]}
    for agent in ids:
        assert place("rm", "--yes", agent)[0] == 0
    (child,) = ids - {parent}
    return parent, child, value


def test_agents_that_no_one_spawned_do_not_come_along(place: Place) -> None:
    """A document brings one agent and those that it spawned, which may be one of these alone."""
    parent, child, value = family(place)
    other = place("new")[1].strip()
    stranger = orjson.loads(place("inspect", "--saved", other)[1])
    place("rm", "--yes", other)
    more = [file for file in stranger["files"] if "/" in file["path"]]
    alone = [file for file in value["files"] if parent not in file["path"]]

    assert "2 agents" in refuses(place, {**value, "files": value["files"] + more})
    refuses(place, {**value, "files": alone})
    assert child in refuses(place, {**value, "agentId": child})
    (place.folder / "child").write_bytes(orjson.dumps({**value, "agentId": child, "files": alone}))
    assert place("import", "child")[:2] == (0, f"{child}\n")


def test_a_spawned_agent_is_checked_as_its_parent_is(place: Place) -> None:
    """Damage in one of them refuses them all."""
    _, child, value = family(place)
    for file in value["files"]:
        if child in file["path"] and "/transcripts/" in file["path"]:
            file["text"] = file["text"].replace("count", "clone")
    refuses(place, value)
