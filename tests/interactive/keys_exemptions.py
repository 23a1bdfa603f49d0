"""Where the clients did not do what the keys log says, each place by name."""

# Commands of which no file of the client's has a word, by how many were typed.
UNWRITTEN = {
    "claude-2.1.332/clear": 1,
    "claude-2.1.332/commands": 15,
    "claude-2.1.332/plain": 1,
    "claude-2.1.332/queue_commands": 1,
    "claude-2.1.332/rename": 2,
    "claude-2.1.332/resume": 1,
    "claude-2.1.332/rewind_code": 1,
    "claude-2.1.332/rewind_leave": 1,
    "claude-2.1.98/clear": 1,
    "claude-2.1.98/commands": 3,
    "claude-2.1.98/plain": 1,
    "claude-2.1.98/rename": 2,
    "claude-2.1.98/resume": 1,
    "claude-2.1.98/rewind_code": 1,
    "claude-2.1.98/rewind_leave": 1,
    "gemini-0.61.0/chat": 7,
    "gemini-0.61.0/clear": 3,
    "gemini-0.61.0/compress": 2,
    "gemini-0.61.0/declines": 2,
    "gemini-0.61.0/plain": 1,
    "gemini-0.61.0/restore": 2,
    "gemini-0.61.0/resume": 1,
    "gemini-0.61.0/rewind": 1,
    "gemini-0.61.0/rewind_first": 2,
}

# Not all of it reached the client; the screen has what did.
AS_SENT = {
    # A question mark in an empty box opens the help.
    ("gemini-0.61.0/unicode", "? a question mark first [[plan:hello q=3]]"): (
        "a question mark first [[plan:hello q=3]]"
    ),
    # The dialog took the first letters for keys of its own.
    ("gemini-0.61.0/plan", "Make it shorter"): "User feedback: r",
    # The list of commands took these for others.
    ("claude-2.1.98/commands", "/bashes"): "/tasks",
    ("claude-2.1.98/commands", "/usage"): "/context",
    # Esc put the first command back into the box, and the second was typed behind it.
    **{
        (f"claude-{version}/bash", "!for i in 1 2 3; do echo $i; done # 'quotes' <tags> & more"): (
            "sleep 30; echo late!for i in 1 2 3; do echo $i; done # 'quotes' <tags> & more"
        )
        for version in ("2.1.98", "2.1.332")
    },
}

# What a recording has a placeholder for: it began like the context, which was cut from all files.
CUT = {("gemini-0.61.0/unicode", "<session_context> typed by hand [[plan:hello q=1]]")}

# Taken back into the box before anything was sent, and sent as a part of what was typed next.
TAKEN_BACK = {"!sleep 30; echo late"}

# Words beside a yes are the person's; all other words in dialogs are in a refusal or an answer.
BESIDE_A_YES = {"claude-2.1.98/allow_note", "claude-2.1.332/allow_note"}

# Of the prompts behind which a client itself went back, those that it does not send again: what it
# sends when the session is resumed (tests/realclients) says so.
LEFT = {
    ("claude-2.1.98/esc_early", "Answer this"),
    ("claude-2.1.332/esc_early", "Answer this"),
    ("gemini-0.61.0/chat", "After the save"),
    ("gemini-0.61.0/confirm", "Touch two"),
    ("gemini-0.61.0/confirm", "Touch five"),
    ("gemini-0.61.0/esc_early", "Answer this"),
    ("gemini-0.61.0/esc_text", "Tell me a long story"),
    ("gemini-0.61.0/restore", "Change it"),
}

# Prompts that were fetched back from Claude's queue and waited there again, as no log says.
WAITED = {
    ("claude-2.1.98/queue_edit", "Queued and fetched back"),
    ("claude-2.1.332/queue_edit", "Queued and fetched back"),
}

# Prompts that were sent when a turn was over, or the client had started: their rows have that time.
SENT_LATER = {
    "claude-2.1.98/resume",
    "claude-2.1.332/resume",
    "gemini-0.61.0/queue_edit",
    "gemini-0.61.0/resume",
}

# The titles of the sessions in each store where they are not the first prompts: the client's own.
TITLES = {
    "claude-2.1.98/branch": {"Say hi", "side way (Branch)"},
    "claude-2.1.332/branch": {"Say hi", "side way"},
    "claude-2.1.98/rename": {"Second name"},
    "claude-2.1.332/rename": {"Second name"},
    "claude-2.1.332/queue_commands": {"queued name"},
    # What the fake model said when it was asked for a summary.
    "gemini-0.61.0/resume": {"Fine.", "Prompt on the command line [[plan:hello q=3]]"},
}
