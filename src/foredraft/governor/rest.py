"""When to leave proposers alone: what deciding takes, held against what it saves.

A decision not to draft has cost time too. As long as no draft pays, that may take about THINKING of the steps' time, so
after such a decision some steps pass in which nobody is asked. What plans save pays for the decisions of a while, and a
new sequence, which may be of another kind, brings some with it.
"""

from __future__ import annotations

import math

THINKING = 0.003  # share of the time
MOST_STEPS = 20  # of a rest
PATIENCE, NEW_PATIENCE = 0.4, 0.15  # plain steps' time that savings, or new sequences alone, may lay by
RECENT = 0.05  # weight of a decision in their mean time


class Rest:
    """`overhead_s`: what a decision takes, in the mean of late, asking for free drafts included."""

    def __init__(self) -> None:
        self.overhead_s = 0.0
        self._owed_s = 0.0  # below 0: laid by
        self._until = 0

    def is_on(self, step: int) -> bool:
        return step < self._until

    def begin(self, step: int) -> None:
        """Nothing can pay as things are; rest for as long as there is."""
        self._until = step + MOST_STEPS

    def decided(self, seconds: float, saved_s: float, share_new: float, turn_s: float) -> None:
        """A decision took so long. saved_s: what its plan should save; share_new: of sequences that have just begun;
        turn_s: time of a plain step."""
        self.overhead_s += RECENT * (seconds - self.overhead_s)
        self._owed_s += seconds - max(saved_s, 0.0) - NEW_PATIENCE * turn_s * share_new
        self._owed_s = max(self._owed_s, -PATIENCE * turn_s)

    def owe(self, seconds: float) -> None:
        """Learning from a step without drafts took so long too."""
        self._owed_s += seconds

    def step_ended(self, step: int, seconds: float) -> None:
        """step: the next one."""
        if self._owed_s > 0:
            self._until = step + min(math.ceil(self._owed_s / (THINKING * seconds)) - 1, MOST_STEPS)
            self._owed_s = 0.0
