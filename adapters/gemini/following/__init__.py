"""Sessions of Gemini CLI, read while the client writes them."""
