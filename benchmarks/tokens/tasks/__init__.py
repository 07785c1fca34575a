"""The twenty tasks, in the order of the table: first those in which a program has least to do."""

from __future__ import annotations

from . import chains, filters, joins, small
from .task import Task

TASKS: list[Task] = [*small.TASKS, *chains.TASKS, *filters.TASKS, *joins.TASKS]

__all__ = ["TASKS", "Task"]
