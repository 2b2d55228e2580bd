"""Compute threads: two pools (decode, prefill), each pinned, and read back from the kernel.

The Python thread that decodes is thread 0 of both pools and stays pinned to the first core after the first decode;
whatever it starts later inherits that one core. So the prepare thread is started before, on the spare CPUs.
A pool has at least as many threads as llama.cpp is told (a smaller one is a SIGSEGV); with fewer in use the first ones
work, on the first cores. Their number changes the last bits of an answer as soon as attention is split over threads
(measured, SmolLM2-135M with 2 threads and 1: beside a prompt of 475 tokens logprobs differed by up to 0.13, the greedy
text did not; below 256 cells nothing did; with 2 again everything was as before). With one thread OpenMP has no
team and no pinning of its own: the thread is pinned here, which does no harm for more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from edged.messages import ThreadPin
from edged.system import cpu
from edged.worker import llama, pools


class ComputeThreads:
    """The pools of one context, made before its first decode and never freed: they go with the process."""

    def __init__(self, context: llama.Context, cores: cpu.Cores) -> None:
        self._context, self._cores = context, cores
        self.warnings = list(cores.warnings)
        self._decode = pools.new(cores.decode)
        same = cores.prefill == cores.decode
        self._prefill = self._decode if same else pools.new(cores.prefill)
        if self._decode is None or self._prefill is None:
            self.warnings.append("compute threads are not pinned one by one: this llama.cpp has no thread pools")
        try:
            os.sched_setaffinity(0, self._first_mask())
        except OSError as error:
            self.warnings.append(f"pinning to core {cores.decode[0]} failed: {error.strerror}")
        self._kind = ""
        self._most = 0
        self.use(prefill=False)

    def _first_mask(self) -> set[int]:
        pinned = self._decode is not None and self._prefill is not None
        return {self._cores.decode[0]} if pinned else {*self._cores.decode, *self._cores.prefill}

    def limit(self, most: int) -> None:
        """So many of the threads compute from the next decode on, those on the first cores; 0: all."""
        if most != self._most:
            self._most, self._kind = most, ""

    def _count(self, cores: Sequence[int]) -> int:
        return min(len(cores), self._most or len(cores))

    def use(self, *, prefill: bool) -> None:
        """Chooses the pool for the next decode. llama.cpp would go by the batch's size, which mixes the two."""
        kind = "prefill" if prefill else "decode"
        if kind == self._kind or (self._kind and self._cores.prefill == self._cores.decode):
            return
        self._kind = kind
        pool = self._prefill if prefill else self._decode
        count = self._count(self._cores.prefill if prefill else self._cores.decode)
        if pool is None:
            pools.set_count(self._context, count)
        else:
            pools.attach(self._context, pool, count)

    def lend(self, context: llama.Context) -> None:
        """Another context, never decoded at the same time, computes with the prefill threads."""
        count = self._count(self._cores.prefill)
        if self._prefill is None:
            pools.set_count(context, count)
        else:
            pools.attach(context, self._prefill, count)

    def pins(self, before: set[int]) -> list[ThreadPin]:
        """The compute threads as the kernel shows them: this one and those that came with the first decodes."""
        tids = [os.getpid(), *sorted(cpu.tasks() - before - {os.getpid()})]
        decode, prefill = self._cores.decode, self._cores.prefill
        wanted = list(decode if len(decode) >= len(prefill) else prefill)
        pins = []
        for tid in tids:
            cores = cpu.affinity_of(tid)
            core = cores[0] if len(cores) == 1 else -1
            roles = [name for name, of in (("decode", decode), ("prefill", prefill)) if core in of]
            pins.append(ThreadPin(tid, core, cores, "+".join(roles) or "unpinned"))
            if core in wanted:
                wanted.remove(core)
        if wanted:
            self.warnings.append(f"no compute thread is pinned to {', '.join(f'core {c}' for c in wanted)}")
        return pins
