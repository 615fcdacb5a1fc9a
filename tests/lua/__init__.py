"""The scripts as files: how they are put together, and what they may say."""
