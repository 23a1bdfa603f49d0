"""A stand-in for Claude Code."""

from bench import Bench
from clients import ID

from agentsdir.adapters.claude.run import ClaudeProvider


class ClaudeBench(Bench):
    """It reads a prompt from its input, which stays open, and writes a line for each message."""

    provider = ClaudeProvider()
    script = """\
def hear(): return json.loads(sys.stdin.readline() or "null")
def done(**more): say(type="result", subtype="success", is_error=False, result="x", **more)
def closed(): return sys.stdin.readline() == ""
def answer(name, text):
    part = dict(type="text", text=text)
    say(type="assistant", uuid=name, message=dict(id=name, role="assistant", content=[part]))
prompt = hear()
BODY
"""
    turn = "answer('a1', 'An answer'); done()"
    begins = "say(type='system', subtype='init', session_id='s', model='m')"
    chats = "say(type='system', subtype='status', session_id='s')"
    mode_option = "--permission-mode"
    inherited = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    saved = {f"projects/-w/{ID}.jsonl": b'{"type":"summary"}\n'}
