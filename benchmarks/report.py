"""The results as Markdown tables, and as JSON."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runner import Goal, Table


def as_text(table: Table) -> str:
    """A table of medians with their range, and the ratio to the yardstick of the same repeat."""
    versus = table.yardstick
    head = f"| {table.title} | {table.unit}, median [range] |" + (f" to {versus} |" if versus else "")
    lines = [head, "|---|---|" + ("---|" if versus else "")]
    for name, values in table.rows.items():
        line = f"| {name} | {number(statistics.median(values))}"
        if max(values) != min(values):
            line += f" [{number(min(values))} to {number(max(values))}]"
        lines.append(line + " |" + (f" {number(table.ratio(name, versus))} |" if versus else ""))
    lines += ["", *(f"goal: {goal_text(table, goal)}" for goal in table.goals), *table.notes]
    return "\n".join(lines).rstrip()


def goal_text(table: Table, goal: Goal) -> str:
    """One goal, what it came to, and whether it is met."""
    value, met = table.outcome(goal)
    bound = f"at most {number(goal.most)}" if goal.most is not None else f"at least {number(goal.least or 0)}"
    what = f"{goal.row} / {goal.versus}" if goal.versus else f"{goal.row} ({table.unit})"
    return f"{what}: {number(value)}, {bound}: {'met' if met else 'MISSED'}"


def number(value: float) -> str:
    """Three digits that count, or all of a large number."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(question: str, table: Table) -> dict[str, Any]:
    """Everything about a table, for a file."""
    return {
        "question": question,
        "title": table.title,
        "unit": table.unit,
        "yardstick": table.yardstick,
        "rows": {
            name: {
                "median": statistics.median(values),
                "min": min(values),
                "max": max(values),
                "ratio": table.ratio(name, table.yardstick) if table.yardstick else None,
                "values": values,
            }
            for name, values in table.rows.items()
        },
        "goals": [goal_text(table, goal) for goal in table.goals],
        "notes": table.notes,
    }
