"""The tasks, in the order of the table: first those in which a program has least to do; of an API the last."""

from __future__ import annotations

from . import chains, filters, joins, operations, small
from .task import Task

TASKS: list[Task] = [*small.TASKS, *chains.TASKS, *filters.TASKS, *joins.TASKS, *operations.TASKS]

__all__ = ["TASKS", "Task"]
