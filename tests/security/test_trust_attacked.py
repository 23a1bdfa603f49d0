"""What comes from a root, a bundle or an archive reads, writes and runs nothing outside the root.

Every command is given to every hostile agent (`hostile_roots`), three ways: in a clone that is
not trusted, imported from a bundle, and archived in such a clone.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_verbs import EVERY, READS, WRITES, filled
from arena import Arena, Ran
from hostile_roots import ATTACKS, SECRET, Attack, Honest, Machine, nothing, spoiled

from agentsdir.cli.command_line import COMMANDS

PUT_BACK = {"own.txt", "out", "note.txt", "run", "talk.jsonl", "kept.txt", "planted", ".envrc"}
"""What may stand in the folder in which a bundle was imported: no settings, hooks or agents."""


@pytest.fixture(scope="module")
def honest(memory: Path | None) -> Iterator[Honest]:
    """Return honest agents to spoil, made where the attacker works."""
    with tempfile.TemporaryDirectory(dir=memory, prefix="attacker-") as folder:
        yield Honest.make(Path(folder))


@pytest.fixture(scope="module")
def bundle(memory: Path | None) -> Iterator[Path]:
    """Return an honest bundle, with files of a working directory."""
    with tempfile.TemporaryDirectory(dir=memory, prefix="honest-") as folder:
        arena = Arena.make(Path(folder))
        (arena.work / "kept.txt").write_text("kept\n")
        agent = arena.ok("new")
        arena.ok("send", agent, "hello")
        arena.ok("export", "--workspace", agent, "bundle.tar")
        yield arena.work / "bundle.tar"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a user's machine."""
    made = Machine(tmp_path)
    made.make()
    return made


# What says nothing of an agent is given to hostile roots, and to one honest agent of each kind.
OF_NOTHING = ("schema", "adapters", "trust", "import")


def lines(agent: str, out: Path, bundle: Path, attack: Attack) -> list[list[str]]:
    """Return the command lines for an agent; what is written goes to folders of their own."""
    whole = not attack.travels or attack.spoil is nothing
    chosen = [
        line
        for command, given in EVERY.items()
        for line in given
        if whole or not (command in OF_NOTHING or line in (["list", "--native"], ["new"]))
    ]
    filled = []
    for number, line in enumerate(chosen):
        place = out / str(number)
        words = {"AGENT": agent, "BUNDLE": str(bundle)}
        one = [
            words.get(word, word).replace("OUT", str(place)).replace("=AGENT", f"={agent}")
            for word in line
        ]
        if any(str(place) in word for word in one):
            place.mkdir()
        filled.append(one)
    return filled


class Judge:
    """Says what the runs on one machine did that they may not do.

    Args:
        machine: where they ran.
        root: whose bytes may be read and changed.
        named: what the command lines named: folders to write to, and files to read.
        trusted: whether programs may be started, and clients' stores be written to.
    """

    def __init__(self, machine: Machine, root: Path, *named: Path, trusted: bool = False) -> None:
        self._machine = machine
        self._root = root
        self._named = named
        self._trusted = trusted
        self._stores = [machine.home / name for name in (".claude", ".gemini")]
        # Folders in which a client's session is put; what stands there already is left alone.
        self._places = [machine.home / ".claude" / "projects", machine.home / ".gemini"]

    def harm(self, runs: list[Ran]) -> list[str]:
        """Return all the harm that was done."""
        found = []
        for ran in runs:
            ran.tidy()
            for seen in ran.seen:
                what, _, path = seen.partition(" ")
                if not self._may(ran.arguments, what, Path(path)):
                    found.append(f"{' '.join(ran.arguments)}: {seen}")
            if SECRET in ran.out + ran.err and "--native" not in ran.arguments:
                found.append(f"{' '.join(ran.arguments)}: tells a secret")
            if not self._trusted:
                found += [f"{' '.join(ran.arguments)}: {n}" for n in ran.notes if is_process(n)]
        keeps = self._machine.tells(self._root)
        return [*found, *(f"a secret is kept in {path}" for path in keeps)]

    def _may(self, arguments: tuple[str, ...], what: str, path: Path) -> bool:
        if what == "read" and path.is_relative_to(self._machine.config):
            # To read a file there is to run it; the names of the folder are looked at.
            return self._trusted or path.name == "hooks" or "hooks" not in path.parts
        if any(path.is_relative_to(named) for named in self._named):
            return True
        if self._trusted and path == self._machine.base / "ran":
            return True  # what was run is looked at there
        if self._trusted and path in self._places:
            return True
        if what != "read":
            return False
        if self._trusted and path.parent == self._machine.base / "bin":
            return True
        in_store = any(path.is_relative_to(store) for store in self._stores)
        if "--native" in arguments:
            return in_store
        if self._trusted and arguments[0] == "import" and path.suffix == ".jsonl":
            return in_store  # compared, to tell whether the bundle has all of that session
        # A word may be the id of a session: the clients' folders are searched for such a name.
        searches = self._trusted or arguments[0] in ("parse", "follow", "log", "last", "new")
        return searches and in_store and path.is_dir()


def is_process(note: list[str]) -> bool:
    """Tell whether an audit event is about a process that is started."""
    return note[0].startswith(("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system"))


def test_every_command_is_given_to_them() -> None:
    """A new command must be listed in `agent_verbs`, with the lines that make it read and write."""
    assert sorted(EVERY) == sorted(COMMANDS)
    for name, given in EVERY.items():
        assert all(line[0] == name for line in given)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_clone_reaches_nothing_outside(
    machine: Machine, honest: Honest, bundle: Path, name: str
) -> None:
    """No byte is read or written there, and nothing is run."""
    agent = spoiled(machine, honest, ATTACKS[name], machine.clone)
    given = Path(shutil.copy(bundle, machine.base / "work" / "honest.tar"))
    out = machine.project / "out"
    typed = lines(agent, out, given, ATTACKS[name])
    machine.watch(machine.clone)
    runs = machine.run(typed, cwd=machine.project)
    assert Judge(machine, machine.clone, out, given).harm(runs) == []
    assert list((machine.base / "ran").iterdir()) == []
    # It is read, so that it is not merely refused as damaged.
    (read,) = (ran.code for ran in runs if ran.arguments == ("inspect", agent))
    assert read == {"linked log": 12}.get(name, 0)


# What together looks at all of an agent that was brought back.
BACK = ("inspect --runtime", "replay", "send", "resume --workspace", "archive", "rm")


@pytest.mark.parametrize("name", ATTACKS)
def test_an_archive_reaches_nothing_outside(
    machine: Machine, honest: Honest, bundle: Path, name: str
) -> None:
    """Of a clone: agents that were put away, asked for and brought back."""
    agent = spoiled(machine, honest, ATTACKS[name], machine.clone)
    archive = machine.clone / "archive"
    if not archive.is_symlink():
        archive.mkdir()
        (machine.clone / "agents" / agent).rename(archive / agent)
    given = Path(shutil.copy(bundle, machine.base / "work" / "honest.tar"))
    out = machine.project / "out"
    away = lines(agent, out, given, ATTACKS[name])
    back = [filled({**READS, **WRITES}[verb], agent) for verb in BACK]
    machine.watch(machine.clone)
    runs = machine.run([*away, ["archive", "--undo", agent], *back], cwd=machine.project)
    assert Judge(machine, machine.clone, out, given).harm(runs) == []
    assert list((machine.base / "ran").iterdir()) == []


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.travels])
def test_a_bundle_reaches_nothing_outside(
    machine: Machine, honest: Honest, bundle: Path, name: str
) -> None:
    """Imported into the user's own root, as a tar and as a folder: its turns run as the user's.

    A client may then be run, and a session of its own is put into its store; no file of the
    user's is read or changed, and the hook for outgoing texts is given what the bundle says.
    """
    attack = ATTACKS[name]
    packed = machine.base / "attacker"
    packed.mkdir()
    spoiled(machine, honest, attack, packed)
    with tarfile.open(machine.base / "work" / "evil.tar", "w") as tar:
        tar.add(packed, arcname=".")
    evil = (packed, machine.base / "work" / "evil.tar")
    given = Path(shutil.copy(bundle, machine.base / "work" / "honest.tar"))
    machine.own_root.mkdir()
    machine.watch(machine.own_root)
    runs = machine.run([["import", str(path)] for path in evil], cwd=machine.here)
    for number, one in enumerate([ran.out.strip() for ran in runs if ran.code == 0]):
        out = machine.here / "out" / str(number)
        out.mkdir()
        again = [filled({**READS, **WRITES}[verb], one) for verb in BACK]
        given_to = lines(one, out, given, attack) if number == 0 else again
        runs += machine.run(given_to, cwd=machine.here)
    judge = Judge(machine, machine.own_root, machine.here, given, *evil, trusted=True)
    assert judge.harm(runs) == []
    stores = (".claude/projects", ".gemini/tmp", ".gemini/projects.json", ".gemini/history")
    placed = [path.relative_to(machine.home) for path in machine.added(machine.own_root)]
    assert [path for path in placed if not str(path).startswith(stores)] == []
    assert {path.name for path in machine.here.iterdir()} <= PUT_BACK
    assert {path.name for path in (machine.base / "ran").iterdir()} <= {
        "claude", "gemini", "outgoing",
    }  # fmt: skip
    for path in (machine.base / "ran").iterdir():
        # An option's value stands in the same word, so that it is no option itself.
        words = path.read_text().splitlines()
        assert not {"--dangerously-skip-permissions", "--yolo", "--add-dir"} & set(words)
        assert not [word for word in words if word.startswith(("--mcp-config", "--add-dir"))]
        assert not [word for word in words if "bypassPermissions" in word]
