"""The version of this distribution, readable without importing packaging metadata."""

VERSION = "0.1.0"
