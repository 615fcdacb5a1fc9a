"""Tests of what a user installs."""
