"""An overlay, as containers have it: folders of the lower layer can be removed, and not renamed."""

from __future__ import annotations

from pathlib import Path

from console import Console
from machine import need
from mounted import overlay


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and bytes of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_agents_of_the_lower_layer_are_archived_brought_back_and_removed(tmp_path: Path) -> None:
    """With every byte, and nothing is left of the one that is removed."""
    need("root", "overlay")
    image = Console(tmp_path / "lower" / "root", tmp_path)
    agent = image.new("--name", "demo")
    image.ok("send", agent, "hello")
    image.ok("suspend", agent)

    with overlay(tmp_path) as merged:
        console = Console(merged / "root", tmp_path)
        before = contents(console.folder(agent))

        console.ok("archive", agent)
        assert not console.folder(agent).exists()
        assert contents(console.root / "archive" / agent) == before
        console.ok("archive", "--undo", agent)
        assert contents(console.folder(agent)) == before
        assert console.ok("send", agent, "still here") == "still here\n"
        assert console("validate").out == ""

    with overlay(tmp_path) as merged:
        console = Console(merged / "root", tmp_path)
        console.ok("rm", "--yes", agent)
        assert list((console.root / "agents").iterdir()) == []
        assert console.ok("list") == ""
        assert console("validate").out == ""
