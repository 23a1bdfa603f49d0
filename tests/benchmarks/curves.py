"""Measures how commands grow: curves.py agents|turns|transcripts|inbox [--from N] [--to N].

For each of a series of sizes it makes that many agents, turns, megabytes of transcript or messages
that wait, and runs commands on them. The same commands run, in turn with these, on the smallest
input that there is (`start`). Printed are CPU seconds, their ratio to a floor that only decodes the
same bytes, the peak of memory, and exponents, fitted by least squares to the logarithms:

- `whole`: of what a command takes, as times its start. 0 is flat.
- `growth`: of what it takes more than its start. 1 is linear, 2 is quadratic.
- `memory`: of the peak.

The large end takes much time and room: `agents --to 100000` 5 GB, `turns --to 100000` 10 GB,
`transcripts --to 10000` (megabytes) 22 GB. Everything is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import read_records

HERE = Path(__file__).parent
AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
SMALL_GROWTH = 1.0
"""What is less, as times the start, is mostly noise, and no part of a fit."""

_OPENS = """
import orjson, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob(sys.argv[2]):
    with path.open("rb") as file:
        """
LOADS = {
    "json": _OPENS + "orjson.loads(file.read())",
    "jsonl": _OPENS + "for line in file: orjson.loads(line)",
}

Argv = list[str]


class Task(NamedTuple):
    """Commands on one input, and a loop that only decodes the same bytes."""

    floor: Argv
    commands: dict[str, Argv]


class Run(NamedTuple):
    """The least CPU seconds of a command, of its start and of the floor; its peak in MiB."""

    cpu: float
    start: float
    floor: float
    peak: float


class Curve(NamedTuple):
    """What one command takes at each size."""

    runs: dict[int, Run]

    @property
    def whole(self) -> float:
        """The exponent of what the command takes, as times its start in the same rounds."""
        return exponent({size: run.cpu / run.start for size, run in self.runs.items()})

    @property
    def growth(self) -> float:
        """The exponent of what it takes more than its start; 0 where that is only noise."""
        more = {size: run.cpu / run.start - 1 for size, run in self.runs.items()}
        return exponent({size: times for size, times in more.items() if times > SMALL_GROWTH})

    @property
    def memory(self) -> float:
        """The exponent of its peak."""
        return exponent({size: run.peak for size, run in self.runs.items()})


def exponent(values: dict[int, float]) -> float:
    """Return the k of the power of size, c * size**k, that is nearest in logarithms; 0 of one."""
    if len(values) < 2:
        return 0.0
    logarithms = ([math.log(size) for size in values], [math.log(one) for one in values.values()])
    return statistics.linear_regression(*logarithms).slope


def agents(folder: Path, size: float) -> Task:
    """Make a root of so many suspended agents of one turn, all left in order."""
    root = folder / "root"
    generate("agent_root.py", root, int(size))
    on_root = [AGENTSDIR, "--root", str(root)]
    one = min(path.name for path in (root / "agents").iterdir())
    name = json.loads((root / "agents" / one / "state.json").read_bytes())["name"]
    return Task(
        loads("json", root / "agents", "*/state.json"),
        {
            "inspect NAME": [*on_root, "inspect", name],
            "send NAME": [*on_root, "send", name, "how are you"],
            "new": [*on_root, "new"],
            "new --name": shell(*on_root, "new", "--name", "none-$$"),
            "list": [*on_root, "list"],
            "restore": [*on_root, "restore"],
            "restore --full": [*on_root, "restore", "--full"],
            "validate": [*on_root, "validate"],
        },
    )


def turns(folder: Path, size: float) -> Task:
    """Make an agent of so many turns, 12 KB of log each."""
    root = folder / "root"
    agent = generate("long_log.py", root, 0, int(size))
    bundle, other = folder / "bundle.tar", folder / "other"
    on_root = [AGENTSDIR, "--root", str(root)]
    again = f"rm -rf {other} && exec {AGENTSDIR} --root {other} import {bundle}"
    return Task(
        loads("jsonl", root / "agents" / agent, "events.jsonl"),
        {
            "tag": [*on_root, "tag", agent, "+seen"],
            "send": [*on_root, "send", agent, "how are you"],
            "suspend": [*on_root, "suspend", agent],
            "inspect": [*on_root, "inspect", agent],
            "replay": [*on_root, "replay", agent],
            "restore --full": [*on_root, "restore", "--full", agent],
            "validate": [*on_root, "validate", str(root / "agents" / agent)],
            "inspect --runtime": [*on_root, "inspect", "--runtime", agent],
            "export": shell(*on_root, "export", "--bundle", agent, "-", ">", str(bundle)),
            "import": ["/bin/sh", "-c", again],
        },
    )


def transcripts(folder: Path, size: float) -> Task:
    """Make so many megabytes of Claude Code's rows: as one session, and as one for each MB."""
    one, many = folder / "session.jsonl", folder / "sessions"
    generate("claude_rows.py", one, size)
    generate("claude_rows.py", many, size, 7, max(1, int(size)))
    return Task(
        loads("jsonl", folder, "session.jsonl"),
        {
            "parse FILE": [AGENTSDIR, "parse", str(one)],
            "follow FILE": [AGENTSDIR, "follow", str(one), "--until-idle", "0"],
            "parse FOLDER": [AGENTSDIR, "parse", str(many)],
            "list --native": [AGENTSDIR, "list", "--native", str(many)],
        },
    )


def inbox(folder: Path, size: float) -> Task:
    """Make an agent for which so many messages of 20 words wait."""
    root = folder / "root"
    on_root = [AGENTSDIR, "--root", str(root)]
    agent = run(*on_root, "new")
    run(*on_root, "queue", agent, "word " * 20)
    paths = Layout(root).agent(agent)
    queued = list(read_records(paths.log))[-1]
    with write_agent(paths, disk=Disk(Durability.NEVER)) as writer:
        for number in range(1, int(size)):
            identity = {"message_id": f"{queued.data['message_id'][:-8]}{number:08}"}
            writer.append(queued.event, {**queued.data, **identity}, queued.ts)
    return Task(
        loads("jsonl", root / "agents" / agent, "events.jsonl"),
        {
            "queue": [*on_root, "queue", agent, "word " * 20],
            "list": [*on_root, "list"],
            "inspect": [*on_root, "inspect", agent],
        },
    )


class Subject(NamedTuple):
    """What grows: how it is made, the size of a start, and the first size that is measured."""

    make: Callable[[Path, float], Task]
    start: float
    first: int


SUBJECTS = {
    "agents": Subject(agents, 1, 100),
    "turns": Subject(turns, 1, 10),
    "transcripts": Subject(transcripts, 0.01, 1),
    "inbox": Subject(inbox, 1, 10),
}


def loads(kind: str, folder: Path, pattern: str) -> Argv:
    """Return a command that decodes files, whole or line by line, and does nothing else."""
    return [sys.executable, "-c", LOADS[kind], str(folder), pattern]


def generate(program: str, *arguments: object) -> str:
    """Run a generator that stands beside this file, and return what it printed."""
    return run(sys.executable, str(HERE / program), *map(str, arguments))


def shell(*words: str) -> Argv:
    """Return a command line that a shell expands."""
    return ["/bin/sh", "-c", f"exec {' '.join(words)}"]


def run(*argv: str) -> str:
    """Run a command that has to succeed, and return what it printed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def measure(start: Task, task: Task, home: Path, rounds: int) -> dict[str, Run]:
    """Run both and the floor in turn, and return the least that each command took."""
    small = {f"start of {name}": start.commands[name] for name in task.commands}
    commands = {"": task.floor, **small, **task.commands}
    job = {"commands": commands, "rounds": rounds, "cwd": str(home), "env": dict(os.environ)}
    done = subprocess.run(
        [sys.executable, str(HERE / "measure.py")],
        input=json.dumps(job), check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    samples = json.loads(done.stdout)
    cpu = {name: min(cpu for cpu, _, _ in runs) for name, runs in samples.items()}
    return {
        name: Run(
            cpu[name],
            cpu[f"start of {name}"],
            cpu[""],
            max(peak for _, peak, _ in samples[name]) / 1024,
        )
        for name in task.commands
    }


def curves(
    subject: Subject, sizes: list[int], only: list[str], above: Path | None, rounds: int
) -> dict[str, Curve]:
    """Measure the commands of a subject at each size: all, or only some."""
    found: dict[str, Curve] = {}
    with tempfile.TemporaryDirectory(dir=above, prefix="start-") as small:
        start = subject.make(Path(small), subject.start)
        for size in sizes:
            with tempfile.TemporaryDirectory(dir=above, prefix=f"{size}-") as large:
                task = subject.make(Path(large), size)
                if unknown := set(only) - task.commands.keys():
                    raise SystemExit(f"no {unknown} here; there are {[*task.commands]}")
                commands = {name: argv for name, argv in task.commands.items() if name in only}
                task = task._replace(commands=commands or task.commands)
                for name, one in measure(start, task, Path(small), rounds).items():
                    found.setdefault(name, Curve({})).runs[size] = one
                    say(
                        f"{name:<20}{size:>8}{one.cpu:>10.2f} s{one.cpu / one.start:>9.1f} x start"
                        f"{one.cpu / one.floor:>8.1f} x floor{one.peak:>8.0f} MiB"
                    )
    return found


def tenfold(first: int, last: int) -> list[int]:
    """Return the sizes from the first to the last, each ten times the one before."""
    return [first, *tenfold(10 * first, last)] if first < last else [last]


def say(line: str) -> None:
    """Print a line at once, beside the JSON."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, and print a table, and the curves as JSON if they are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument(
        "--from", type=int, dest="first", help="the first size (default: the smallest)"
    )
    parser.add_argument(
        "--to",
        type=int,
        default=1000,
        help="the last size (default: %(default)s); of transcripts, in MB",
    )
    parser.add_argument("--in", type=Path, dest="above", help="where to put what is measured")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=[], help="commands, as in the table")
    parser.add_argument("--json", action="store_true", help="print exponents and peaks as JSON")
    given = parser.parse_args()
    subject = SUBJECTS[given.subject]
    sizes = tenfold(given.first or subject.first, given.to)
    found = curves(subject, sizes, given.only, given.above, given.rounds)
    say(f"{'':<20}{'whole':>10}{'growth':>10}{'memory':>10}")
    for name, curve in found.items():
        say(f"{name:<20}{curve.whole:>10.2f}{curve.growth:>10.2f}{curve.memory:>10.2f}")
    if given.json:
        figures = {
            name: {"whole": curve.whole, "growth": curve.growth, "memory": curve.memory}
            for name, curve in found.items()
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
