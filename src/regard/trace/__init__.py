"""Trace: every number inside a model by name, changed by hand if wanted, and explained down to the weights."""

from regard.trace.edits import Change, edit
from regard.trace.explanation import Explanation, Operand
from regard.trace.program import Attended, Program, Step
from regard.trace.record import record
from regard.trace.trace import Trace

__all__ = ["Attended", "Change", "Explanation", "Operand", "Program", "Step", "Trace", "edit", "record"]
