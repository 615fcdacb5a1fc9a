"""The fault proxy is the package's own: users test their outages with it, too."""

from aiolimit.testing.proxy import HOST, FaultProxy, Traffic

__all__ = ["HOST", "FaultProxy", "Traffic"]
