"""Turns of the real Gemini CLI."""
