"""The package with real servers, clients, loops and processes around it."""
