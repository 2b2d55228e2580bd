"""Which model a file holds, quickly: for what must not be mixed up by accident, not against somebody who wants to.

The sha256 of the whole file costs about half a minute at each start when it comes from an SD card (estimated: 500 MB at
20 MB/s), for something that is only needed when a snapshot is to be reused. So this reads at most 3 MiB: the size, the
first MiB (metadata and vocabulary), the last one, and SAMPLES blocks spread over what is between, where two models of
one architecture and two quantizations or fine-tunings of one model differ everywhere.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

END: Final = 1 << 20
BLOCK: Final = 64 << 10
SAMPLES: Final = 16


def fingerprint(path: str) -> str:
    """32 hexadecimal digits. Raises OSError."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(size.to_bytes(8, "little"))
        for offset, length in spots(size):
            data = os.pread(file.fileno(), length, offset)
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def spots(size: int) -> list[tuple[int, int]]:
    """What is read of a file of that size: offsets and lengths. A small file is read whole."""
    if size <= 2 * END + SAMPLES * BLOCK:
        return [(0, size)]
    step = (size - 2 * END) // SAMPLES
    middle = [(END + i * step + (step - BLOCK) // 2, BLOCK) for i in range(SAMPLES)]
    return [(0, END), *middle, (size - END, END)]
