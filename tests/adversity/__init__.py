"""The package while servers, wires, clocks and callers misbehave."""
