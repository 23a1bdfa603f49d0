"""A bundle may come from anywhere: what is taken in stays in its place, and is small enough."""

from __future__ import annotations

import gzip
import io
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers import CHANGES, NAMES, Change, Place

from agentsdir.formats.errors import Invalid
from agentsdir.formats.store import workspace
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.bundles import Limits, unpack
from agentsdir.formats.store.layout import AgentPaths


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a place of its own."""
    (tmp_path / "work").mkdir()
    return Place(tmp_path / "work")


def tar(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """Return a tar of plain files and of entries as they are given."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return held.getvalue()


def odd(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """Return an entry that is no file."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize("name", NAMES)
def test_a_name_cannot_lead_out(place: Place, name: str) -> None:
    """Absolute, with two dots, unprintable, too long or too deep."""
    place.refuses(tar(("agentsdir.json", b"{}"), (name, b"x")))


@pytest.mark.parametrize(
    "entry",
    [
        odd("agents/x", tarfile.SYMTYPE, "/etc"),
        odd("agents/x", tarfile.LNKTYPE, "agentsdir.json"),
        odd("agents/x", tarfile.CHRTYPE),
        odd("agents/x", tarfile.BLKTYPE),
        odd("agents/x", tarfile.FIFOTYPE),
        odd("agents/x", tarfile.GNUTYPE_SPARSE),
        odd("agents/x", b"Z"),
        odd("agents/x", tarfile.XGLTYPE),
    ],
)
def test_only_plain_files_and_folders_are_taken(place: Place, entry: tarfile.TarInfo) -> None:
    """No link, device, FIFO, hole, or what no one knows."""
    place.refuses(tar(("agentsdir.json", b"{}"), entry, ("agents/x/y", b"through the link")))


def test_no_place_is_named_twice(place: Place) -> None:
    """The second would be another truth than the first."""
    assert "twice" in place.refuses(tar(("agentsdir.json", b"{}"), ("agentsdir.json", b"{}")))
    assert "twice" in place.refuses(tar(("a", b""), odd("a/", tarfile.DIRTYPE)))
    place.refuses(tar(("a", b""), ("a/b", b"")))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no tar", b"\x1f\x8b", gzip.compress(b"no tar"), gzip.compress(tar(("a", b"x")))[:40],
        b"\0" * 10240, tar(("agentsdir.json", b"{}"))[:700], b"BZh91AY", b"\xfd7zXZ\0",
    ],
)  # fmt: skip
def test_what_is_no_tar_is_refused(place: Place, data: bytes) -> None:
    """Cut, empty, of another kind: with the reason, and no traceback."""
    place.refuses(data)


def test_a_tar_is_taken_up_to_its_limits(tmp_path: Path) -> None:
    """In bytes and in entries; what a header announces is not believed either."""
    for limits, data in (
        (Limits(entries=3), tar(*((f"f{number}", b"") for number in range(4)))),
        (Limits(size=10), tar(("a", b"x" * 6), ("b", b"x" * 5))),
        (Limits(size=10**9), _announcing(10**12)),
    ):
        into = tmp_path / str(limits)
        into.mkdir()
        with pytest.raises(Invalid) as caught:
            unpack(io.BytesIO(data), into, limits)
        assert caught.value.kind == "bad-bundle"


def _announcing(size: int) -> bytes:
    entry = tarfile.TarInfo("a")
    entry.size = size
    return entry.tobuf(tarfile.GNU_FORMAT) + b"x" * 512


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A megabyte that would be a gigabyte stops at the limit."""
    data = gzip.compress(tar(("a", bytes(32 * 1024 * 1024))))
    assert len(data) < 100_000

    with pytest.raises(Invalid):
        unpack(io.BytesIO(data), tmp_path, Limits(size=1024 * 1024))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) <= 1024 * 1024


def test_a_header_is_not_read_into_memory(tmp_path: Path) -> None:
    """An extended header of any size would be, and one within one within one for ever."""
    long = odd("a", tarfile.XHDTYPE)
    long.size = 10**10
    with pytest.raises(Invalid, match="header"):
        unpack(io.BytesIO(long.tobuf()), tmp_path)
    small = odd("a", tarfile.XHDTYPE)
    small.size = 11
    one = small.tobuf() + b"11 path=ab\n".ljust(512, b"\0")
    with pytest.raises(Invalid):
        unpack(io.BytesIO(one * 5000), tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_tar_never_gives_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever byte is changed, it is unpacked below the folder, or refused."""
    whole = bytearray(tar(("agentsdir.json", b"{}"), ("agents/x/events.jsonl", b"y" * 600)))
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=4)):
        whole[at] = data.draw(st.integers(0, 255))
    top = tmp_path_factory.mktemp("damaged")
    (top / "into").mkdir()
    with suppress(Invalid):
        unpack(io.BytesIO(bytes(whole)), top / "into")
    assert [path.name for path in top.iterdir()] == ["into"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_bundle_that_is_not_sound_is_refused(place: Place, change: Change) -> None:
    """Whole and before anything is made of it."""
    agent, found = place.bundle()
    place.refuses(tar(*change(agent, found).items()))


@pytest.mark.parametrize(
    "name", ["agentsdir.json", "AGENT/state.json", "AGENT/workspace/manifest.json"]
)
def test_a_document_of_any_size_is_not_read(place: Place, name: str) -> None:
    """Documents are read whole, so one that no export could have written is refused by its size."""
    agent, _ = place.bundle()
    path = place.folder / "bundle" / name.replace("AGENT", f"agents/{agent}")
    with path.open("r+b") as stream:
        stream.truncate(65 * 1024 * 1024)

    code, _, err = place("import", "--json", "bundle")
    assert (code, orjson.loads(err)["kind"]) == (12, "bad-bundle")


def test_an_honest_bundle_is_taken(place: Place) -> None:
    """The same files, unchanged: so it is the change that is refused above."""
    agent, found = place.bundle()
    (place.folder / "honest.tar").write_bytes(tar(*found.items()))

    assert place("import", "honest.tar")[:2] == (0, f"{agent}\n")


def test_messages_that_wait_in_a_bundle_are_said(place: Place) -> None:
    """The next `send` would run them first, and the user who imports them did not write them."""
    agent = place("new")[1].strip()
    with write_agent(AgentPaths(place.root / "agents" / agent, agent)) as writer:
        said = [{"type": "text", "text": "do evil"}]
        data = {"message_id": "m" * 24, "sender": "cli", "kind": "user", "content": said}
        writer.append("message.enqueued", data, "2026-01-02T03:04:05.678900Z")
    place("export", "--bundle", agent, "bundle")

    code, _, err = place("import", "bundle")
    assert (code, "messages that wait in it: 1" in err) == (0, True)


def test_a_link_in_a_folder_bundle_is_not_followed(place: Place) -> None:
    """Neither for the agents nor for a transcript."""
    agent, _ = place.bundle()
    top = place.folder / "bundle"
    secret = place.folder / "secret"
    secret.write_bytes(b"secret")
    main = next(path for path in (top / "agents" / agent / "transcripts").glob("*.jsonl"))
    main.unlink()
    main.symlink_to(secret)

    assert place("import", "bundle")[0] == 12
    assert not (place.root / "agents" / agent).exists()


MANIFESTS: list[Any] = [
    [{"path": "../x", "mode": "0644", "size": 1, "sha256": "0" * 64}],
    [{"path": "/x", "mode": "0644", "size": 1, "sha256": "0" * 64}],
    [{"path": "x", "mode": "4755", "size": 1, "sha256": "0" * 64}],
    [{"path": "x", "mode": "0644", "size": 1, "sha256": "../../../../etc/passwd"}],
    [{"path": "x", "mode": "0644", "size": 1, "sha256": "0" * 64}] * 2,
    [{"path": "x", "link": "/etc"}],
    [{"path": "x", "link": "../etc"}],
    [{"path": "a/x", "link": "../../etc"}],
    [{"path": "x", "link": "."}, {"path": "y", "link": "x/x/.."}],
    [{"path": "x", "link": "y"}, {"path": "x/z", "mode": "0644", "size": 1, "sha256": "0" * 64}],
    [{"path": "x", "link": ""}],
    [{"path": "x", "link": 7}],
    [{"mode": "0644"}],
    [{"path": "x", "mode": "0644", "size": 10**12, "sha256": "0" * 64}],
    [{"path": "x", "mode": "0644", "size": -1, "sha256": "0" * 64}],
    ["x"],
    {"x": 1},
    7,
]


@pytest.mark.parametrize("files", MANIFESTS)
def test_a_manifest_cannot_write_elsewhere(tmp_path: Path, files: Any) -> None:
    """Paths, links and modes are looked at before a file is made."""
    paths = AgentPaths(tmp_path / "agent", "x")
    paths.workspace.mkdir(parents=True)
    manifest = orjson.dumps({"cwd": "/w", "files": files})
    (paths.workspace / "manifest.json").write_bytes(manifest)
    (tmp_path / "into").mkdir()

    with pytest.raises(Invalid):
        workspace.put_back(paths, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["agent", "into"]


def test_a_link_in_the_way_is_not_written_through(place: Place) -> None:
    """A folder of the captured files that is a link here leads nowhere."""
    (place.folder / "sub").mkdir()
    (place.folder / "sub" / "file").write_text("x")
    agent = place("new")[1].strip()
    place("send", agent, "hello")
    place("suspend", "--capture", agent)
    (place.folder / "sub" / "file").unlink()
    (place.folder / "sub").rmdir()
    outside = place.folder.parent / "outside"
    outside.mkdir()
    (place.folder / "sub").symlink_to(outside)

    assert place("resume", "--workspace", agent)[0] == 12
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("secret", [".key", "credentials.json", ".lock", ".turn", ".tmp-x"])
def test_a_bundle_takes_only_what_the_log_names(place: Place, secret: str) -> None:
    """A file that another program put into an agent's folder stays there."""
    agent = place("new")[1].strip()
    place("send", agent, "hello")
    folder = place.root / "agents" / agent
    for where in (folder, folder / "transcripts"):
        (where / secret).write_bytes(b"secret")

    assert place("export", "--bundle", agent, "bundle")[0] == 0
    assert b"secret" not in b"".join(
        path.read_bytes() for path in (place.folder / "bundle").rglob("*") if path.is_file()
    )
