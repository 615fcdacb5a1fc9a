"""The rules of the policies, and how a policy becomes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import policies
from .fixed_window import FixedWindowRule
from .rule import CHARGE, MAX_EXACT, ONE_CALLER, OPS, PEEK, REFUND, RESET, TAKE, UP_TO, Answer, Rule
from .sliding_log import SlidingLogRule
from .sliding_window import SlidingWindowRule
from .token_bucket import TokenBucketRule

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CHARGE",
    "MAX_EXACT",
    "ONE_CALLER",
    "OPS",
    "PEEK",
    "REFUND",
    "RESET",
    "TAKE",
    "UP_TO",
    "Answer",
    "Rule",
    "compile_policy",
]

_RULES: dict[type[object], Callable[[Any], Rule]] = {
    policies.TokenBucket: TokenBucketRule,
    policies.FixedWindow: FixedWindowRule,
    policies.SlidingWindow: SlidingWindowRule,
    policies.SlidingLog: SlidingLogRule,
}


def compile_policy(policy: policies.Policy) -> Rule:
    """Make the rule of a policy."""
    return _RULES[type(policy)](policy)
