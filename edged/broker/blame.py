"""Which request is to blame for a worker's death, and how the guilty one is found (design 4). Pure.

Blame: a death by a signal that a prompt can cause, or a hang, counts for every request that the worker had. Given ones
too: a prompt can kill the thread that prepares it. A death that nobody's prompt causes (SIGKILL, the kernel's OOM
killer, a replacement on purpose) counts for none. PROGRESS tokens read or sampled since the last blame prove a request:
its next blame is its first. What is read or replayed again is no progress.

More than `limits.max_restarts` blames in a row end a request. Where several run together, one guilty request would
take the innocent with it, so that **one blame before that limit it is a suspect and is tried**:

* it is given when everything else that the worker has is proven, and nothing more is given until it is proven itself;
* while it waits for that, nothing else is given: those that run prove themselves or end;
* beside it there is no errand: nobody is blamed for these (they end with the worker, and are not repeated). It waits
  until those that were begun are done, and none is begun while something waits so, nor during the trial;
* what was aborted counts as the worker's until that says `Gone`, as proven as it was then: the worker may be in the
  midst of it, or its thread that prepares, and die of it before it reads the `Abort`.

So an innocent suspect never stands beside one that may be guilty; a guilty one dies on trial and is ended. One
poisonous request costs `max_restarts` + 1 deaths, as many as without others. A trial is not held before the last
chance, since most crashes do not come back, and trials cost the box its parallelism. With `max_restarts` 0 there is no
second chance, and all that ran end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edged.broker.table import Request

CAUSES: Final = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "stalled"})
PROGRESS: Final = 32
"""Tokens, read or sampled."""


def proven(request: Request) -> bool:
    return request.progress - request.blamed_at >= PROGRESS


def suspect(request: Request, most: int) -> bool:
    """One more blame would end it. `most`: `limits.max_restarts`."""
    return request.blamed >= max(1, most) and not proven(request)


def blame(request: Request) -> None:
    """The worker died of something that this request may have caused."""
    request.blamed = 1 if proven(request) else request.blamed + 1
    request.blamed_at = request.progress


def may_go(request: Request, beside: Iterable[Request], most: int, *, errands: bool = False) -> bool:
    """Whether it may be given to the worker that has `beside`, and `errands` or none; what is leaving it included."""
    on_trial = suspect(request, most)
    if on_trial and errands:
        return False
    return not any(suspect(other, most) or (on_trial and not proven(other)) for other in beside)
