"""Runs a command whose standard output is a terminal of 120 columns, and throws that away."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def main() -> int:
    """Run the command that the arguments name; return its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=theirs) as process:
        os.close(theirs)
        try:
            while os.read(ours, 1 << 16):
                pass
        except OSError:  # the command has let go of the terminal
            pass
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
