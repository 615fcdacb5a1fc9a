"""One question per file."""
