"""Every policy, on every backend, on every event loop: one suite."""
