"""Programs that tests run in a process of their own, with every warning an error."""
