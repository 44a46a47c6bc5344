"""When advice begins and ends: what the rules say has to last, so that nobody is called twice for one matter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.governor.advice import Advice, Key, Situation, advise

BEGIN_S = 60.0  # a rule has to hold for as long before its advice begins: a burst is no state
END_S = 300.0  # and to be quiet for as long before it ends: two bursts are one matter
AT_ONCE = ("quarantine",)  # begins without waiting: its evidence has been weighed, and every step counts


@dataclass(frozen=True)
class Changes:
    begun: tuple[Advice, ...]
    ended: tuple[Advice, ...]


class Adviser:
    """Remembers which advice stands. It has no clock: times are passed in, in seconds, and never fall.

    active: advice that has begun and not ended, as it read when it began.
    """

    def __init__(self) -> None:
        self.active: dict[Key, Advice] = {}
        self._since: dict[Key, float] = {}  # what is about to begin (not active) or to end (active): from when on

    def evaluate(self, situations: Iterable[Situation], now: float) -> Changes:
        """Take in how things stand. A route that is not among the situations, or that nothing is known of, is quiet."""
        said = {advice.key: advice for each in situations for advice in advise(each, self.active.keys())}
        begun, ended = [], []
        for key in dict.fromkeys([*said, *self.active, *self._since]):
            if (key in said) == (key in self.active):
                self._since.pop(key, None)
                continue
            lasted = now - self._since.setdefault(key, now)
            if key in said and (lasted >= BEGIN_S or key[0] in AT_ONCE):
                begun.append(said[key])
            elif key not in said and lasted >= END_S:
                ended.append(self.active[key])
        for advice in begun:
            self.active[advice.key] = advice
        for advice in ended:
            del self.active[advice.key]
        for advice in (*begun, *ended):
            del self._since[advice.key]
        return Changes(tuple(begun), tuple(ended))
