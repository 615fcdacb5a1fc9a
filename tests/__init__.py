"""The test suite of aiolimit; a package so that its parts can import `tests.support`."""
