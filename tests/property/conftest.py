"""How long and how randomly Hypothesis looks: on CI the same examples every time, elsewhere new ones."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from ..conftest import ON_CI

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, database=None)
settings.load_profile("ci" if ON_CI else "here")
