"""Two agents in one session: one plans, the other writes what the plan says, and both may change it at any time."""

from .plan import PLAN, Model, Plan, Step
from .planner import begin, revise
from .writer import Told, carry_on

__all__ = ["PLAN", "Model", "Plan", "Step", "Told", "begin", "carry_on", "revise"]
