"""When to look for holders: at ends of steps 2, 4, 8, ..., at the end, on request; never longer than it is worth.

A job that shows no loop at all may have one nevertheless: there, looks come with the number of operators that have run.
"""

from __future__ import annotations

import sys
import time
from typing import Callable

from .. import _internal, _messages

#: What ends steps, the most trustworthy first: what turns less trustworthily is not listened to any more.
STEP, PROFILER, FRAMEWORK, OPTIMIZER, MODULE, OPERATORS = range(6)

#: A look may take this long, as the thread's time on a processor.
LOOK_SECONDS = 1.0
#: All looks together may take this long, and this share of the time since the first turn.
FREE_SECONDS = 1.0
TIME_SHARE = 0.02
#: While no loop shows, only this part of it: one may show later.
SHARE_WITHOUT_LOOP = 0.5

#: Looks until a time of :func:`time.thread_time` and tells how many tensors it found.
Look = Callable[[float], int]


class Schedule:
    """Decides when to look, and keeps the time."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, work_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._work_clock = work_clock
        self._look: Look | None = None
        self._source = OPERATORS
        self._turns = 0
        self._next_turn = 2
        self._started = 0.0
        self._spent = 0.0
        self._looks = 0
        self._is_looking = False
        self._has_failed = False

    def follow(self, look: Look | None) -> None:
        """Look in this way from now on, or no longer."""
        if look is not None and self._look is None:
            self._started = self._clock()
        self._look = look

    def turned(self, source: int) -> None:
        """A step has ended, as far as this source knows."""
        if self._look is None or source > self._source:
            return
        if source < self._source:
            self._source, self._turns, self._next_turn = source, 0, 2
        self._turns += 1
        if self._turns >= self._next_turn and self._has_time():
            self._next_turn = 2 * self._turns
            self._run(self._look)

    def operators_passed(self) -> None:
        """Operators have run, twice as many as the last time."""
        if self._look is not None and self._source == OPERATORS and self._has_time(SHARE_WITHOUT_LOOP):
            self._run(self._look)

    def ended(self) -> None:
        """Recording ends on request, while the job goes on."""
        if self._look is not None and self._has_time():
            self._run(self._look)

    def exits(self) -> None:
        """The job ends. Variables of functions are gone: only worth a look if there was none at the end of a step, nor
        when memory ran out, which was the end of the job."""
        is_late = self._looks > 0 and (self._source != OPERATORS or (self._has_failed and hasattr(sys, "last_value")))
        if self._look is not None and not is_late and _internal.state() == _internal.ON:
            self._run(self._look)

    def failed(self) -> None:
        """Memory has run out. The first time that is worth a look in any case."""
        if self._look is not None and (self._looks == 0 or self._has_time()):
            self._has_failed = True
            self._run(self._look)

    def look_now(self, look: Look) -> int:
        """Look on request: that time is not ours."""
        spent = self._spent
        found = self._run(look)
        self._spent = spent
        return found

    def _has_time(self, share: float = 1.0) -> bool:
        return self._spent < share * (FREE_SECONDS + TIME_SHARE * (self._clock() - self._started))

    def _run(self, look: Look) -> int:
        # Neither from inside a look nor from two threads; nor when the interpreter is being taken down.
        if self._is_looking or sys.is_finalizing():
            return 0
        self._is_looking = True
        begin = self._work_clock()
        _internal.trace_pause()  # what a look calls is nobody's business
        try:
            return look(begin + LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - the job must go on
            _messages.warn_once(f"holders of memory cannot be found: {type(error).__name__}: {error}")
            return 0
        finally:
            _internal.trace_resume()
            self._spent += self._work_clock() - begin
            self._looks += 1
            self._is_looking = False


#: The one of this process.
looks = Schedule()
