"""Every command line that takes an agent, and every one that takes none; new verbs go here."""

from __future__ import annotations

READS: dict[str, list[str]] = {
    "replay": ["replay", "AGENT"],
    "replay --events": ["replay", "--events", "AGENT"],
    "log": ["log", "AGENT"],
    "log --follow": ["log", "--follow", "--until-idle", "0", "--tools", "AGENT"],
    "last": ["last", "AGENT"],
    "wait": ["wait", "--timeout", "0.1", "AGENT"],
    "inspect": ["inspect", "AGENT"],
    "inspect --json": ["inspect", "--json", "AGENT"],
    "inspect --saved": ["inspect", "--saved", "AGENT"],
    "inspect --runtime": ["inspect", "--runtime", "AGENT"],
    "tag": ["tag", "AGENT"],
    "snapshot": ["snapshot", "AGENT"],
    "outbox AGENT": ["outbox", "AGENT"],
    "export": ["export", "AGENT", "-"],
    "export --bundle": ["export", "--bundle", "AGENT", "-"],
}
WRITES: dict[str, list[str]] = {
    "send": ["send", "--wait", "0", "AGENT", "hi"],
    "send --json": ["send", "--wait", "0", "--json", "AGENT", "hi"],
    "send --no-message": ["send", "--wait", "0", "--no-message", "AGENT"],
    "queue": ["queue", "AGENT", "hi"],
    "interrupt": ["interrupt", "--no-wait", "AGENT"],
    "reset": ["reset", "AGENT"],
    "fork": ["fork", "AGENT"],
    "rename": ["rename", "AGENT", "another name"],
    "tag +x": ["tag", "AGENT", "+x"],
    "outbox --deliver": ["outbox", "--deliver", "AGENT"],
    "suspend": ["suspend", "AGENT"],
    "suspend --capture": ["suspend", "--capture", "AGENT"],
    "resume": ["resume", "AGENT"],
    "resume --workspace": ["resume", "--workspace", "AGENT"],
    "restore": ["restore", "AGENT"],
    "archive": ["archive", "AGENT"],
    "archive --undo": ["archive", "--undo", "AGENT"],
    "rm": ["rm", "--yes", "AGENT"],
}
PARENT: dict[str, list[str]] = {
    "new --parent": ["new", "--type=subagent", "--name=child", "--parent=AGENT"],
}
WHOLE: dict[str, list[str]] = {
    "list": ["list"],
    "list --json": ["list", "--json"],
    "resolve": ["resolve", "most-recent-foreground"],
    "outbox": ["outbox"],
    "validate": ["validate"],
    "restore all": ["restore"],
    "archive --list": ["archive", "--list"],
    "trust --list": ["trust", "--list"],
    "config": ["config"],
    "permissions": ["permissions"],
    "new": ["new"],
    "new --name": ["new", "--name", "third"],
    "new --get": ["new", "--get", "--type", "cron", "--cron", "nightly"],
}

# What together runs all code that reads or writes one agent; for tests of many worlds.
LEAN: dict[str, list[str]] = {
    name: {**READS, **WHOLE, **PARENT, **WRITES}[name]
    for name in (
        "list", "replay", "inspect --json", "inspect --runtime", "validate", "new --parent",
        "suspend", "send", "restore", "archive", "archive --undo",
    )
}  # fmt: skip


def filled(arguments: list[str], agent: str) -> list[str]:
    """Put an agent, whatever it is called, in its place."""
    if any("=AGENT" in word for word in arguments):
        return [word.replace("AGENT", agent) for word in arguments]
    if agent.startswith("-"):
        # Two dashes say that no option follows; those of the verb itself must stand before.
        at = arguments.index("AGENT")
        arguments = [*arguments[:at], "--", *arguments[at:]]
    return [agent if word == "AGENT" else word for word in arguments]


# Every command with the lines that make it read or write what it can, by its name; a new command
# must be listed. OUT is a folder for what is written, BUNDLE an honest bundle. Of the agent's life,
# what ends it comes last.
EVERY: dict[str, list[list[str]]] = {
    "list": [
        ["list"], ["list", "--json"], ["list", "--native"],
        ["list", "--all", "--tree", "--here", "--since", "1w"],
    ],
    "inspect": [
        ["inspect", "AGENT"], ["inspect", "--saved", "AGENT"], ["inspect", "--runtime", "AGENT"],
    ],
    "replay": [
        ["replay", "AGENT"], ["replay", "--events", "AGENT"], ["replay", "--state", "AGENT"],
        ["replay", "--check", "AGENT"],
    ],
    "log": [
        ["log", "AGENT"], ["log", "--tools", "--json", "AGENT"],
        ["log", "--follow", "--until-idle", "0", "AGENT"],
    ],
    "last": [["last", "AGENT"], ["last", "--json", "AGENT"]],
    "open": [["open", "AGENT"]],
    "wait": [["wait", "--timeout", "0.1", "AGENT"], ["wait"]],
    "parse": [["parse", "--hidden", "AGENT"], ["parse", "--report", "-", "--view", "all", "AGENT"]],
    "follow": [["follow", "--until-idle", "0", "AGENT"]],
    "validate": [["validate"], ["validate", "--json"]],
    "resolve": [["resolve", "most-recent-foreground"]],
    "snapshot": [["snapshot", "AGENT"], ["snapshot", "--json", "AGENT"]],
    "tag": [["tag", "AGENT"], ["tag", "AGENT", "+x"]],
    "outbox": [["outbox"], ["outbox", "AGENT"], ["outbox", "--deliver"]],
    "schema": [["schema", "block"]],
    "chat": [["chat", "--jsonl"]],
    "adapters": [["adapters"]],
    "trust": [["trust", "--list"]],
    "config": [["config"], ["config", "max_slots=3"]],
    "restore": [["restore", "--dry-run"], ["restore"], ["restore", "AGENT"]],
    "new": [
        ["new"], ["new", "--profile", "evil", "--provider", "claude"],
        ["new", "--from", "AGENT"], ["new", "--get", "--from", "AGENT"],
        ["new", "--type=subagent", "--name=child", "--parent=AGENT"],
    ],
    "send": [
        ["send", "--wait", "0", "AGENT", "hi"],
        ["send", "--wait", "0", "--no-message", "AGENT"],
        ["send", "--wait", "0", "--from", "AGENT", "--to", "AGENT", "hi"],
        ["send", "--wait", "0", "--retry", "last", "AGENT"],
    ],
    "queue": [["queue", "AGENT", "hi"]],
    "spawn": [["spawn", "--wait", "0", "--parent", "AGENT", "a task"]],
    "interrupt": [["interrupt", "--no-wait", "AGENT"]],
    "clear-abort": [["clear-abort", "AGENT"]],
    "fork": [["fork", "AGENT"]],
    "export": [
        ["export", "AGENT", "-"], ["export", "--bundle", "AGENT", "-"],
        ["export", "--bundle", "AGENT", "OUT/bundle"], ["export", "AGENT", "OUT/transcripts"],
        ["export", "--workspace", "AGENT", "OUT/workspace.tar"],
    ],
    "import": [
        ["import", "BUNDLE"], ["import", "BUNDLE", "--cwd", "OUT"],
        ["import", "BUNDLE", "--workspace", "OUT"],
    ],
    "suspend": [
        ["suspend", "AGENT"], ["suspend", "--capture", "AGENT"], ["suspend", "--idle", "0"],
    ],
    "resume": [
        ["resume", "--workspace", "AGENT"], ["resume", "--workspace", "--into", "OUT", "AGENT"],
        ["resume", "AGENT"],
    ],
    "set": [
        ["set", "AGENT", "cwd=OUT"], ["set", "AGENT"], ["set", "AGENT", "budget=turns:9"],
    ],
    "permissions": [
        ["permissions"], ["permissions", "list", "AGENT"],
        ["permissions", "allow", "AGENT", "Bash(*)"],
    ],
    "rename": [["rename", "AGENT", "another"]],
    "reset": [["reset", "AGENT"]],
    "archive": [
        ["archive", "AGENT"], ["archive", "--list"], ["archive", "--undo", "AGENT"],
    ],
    "close": [["close", "AGENT"]],
    "rm": [["rm", "--yes", "AGENT"]],
}  # fmt: skip
