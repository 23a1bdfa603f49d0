"""The command line: arguments in, text or JSON out. Owns terminal, environment and cwd."""
