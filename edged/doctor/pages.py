"""The kernel's page size against what the engine's libraries can be mapped with.

A Pi 5 has pages of 16 KiB by default, a Pi 4 of 4 KiB. A library whose parts are aligned to less than a page is refused
by the loader ("ELF load command alignment not page-aligned"): one that was linked for 4 KiB on another kernel.
"""

from __future__ import annotations

import importlib.util
import os
import struct
from typing import Final

from msgspec import Struct

from edged.doctor import finding, processor
from edged.doctor.box import Box
from edged.doctor.finding import Finding

NAME: Final = "page-size"
PAGESZ: Final = 6  # AT_PAGESZ of getauxval(3)
TRIED: Final = (4096, 16384)
INSTALLED: Final = "opt/edged/current/venv/lib/python3*/site-packages"
_LOAD: Final = 1


class Pages(Struct, frozen=True):
    """`libraries`: name → least alignment of its loaded parts."""

    size: int | None
    libraries: dict[str, int]


def check(box: Box) -> list[Finding]:
    return judge(look(box))


def look(box: Box) -> Pages:
    aligned = {os.path.basename(path): alignment(path) for path in _libraries(box)}
    return Pages(box.auxiliary(PAGESZ), {name: size for name, size in aligned.items() if size is not None})


def judge(pages: Pages) -> list[Finding]:
    if pages.size is None:
        return [finding.unknown(NAME, "the page size is unknown", do="getconf PAGESIZE, on the box itself")]
    size = f"pages of {pages.size >> 10} KiB"
    small = sorted(name for name, aligned in pages.libraries.items() if aligned < pages.size)
    if small:
        why = f"{', '.join(small)}: linked for pages of {min(pages.libraries.values()) >> 10} KiB, cannot be loaded"
        do = "install these packages for this board, or boot the kernel with 4 KiB (kernel=kernel8.img in config.txt)"
        return [finding.error(NAME, size, why, do)]
    if pages.size not in TRIED:
        return [finding.info(NAME, size, "edged was written for 4 and 16 KiB")]
    fit = f"; {len(pages.libraries)} libraries of the engine fit" if pages.libraries else ""
    return [finding.ok(NAME, size + fit)]


def _libraries(box: Box) -> list[str]:
    """Paths, of the engine and of numpy: here, or in the release installed below another root."""
    if not box.here:
        patterns = ("llama_cpp/lib/*.so", "numpy/_core/_multiarray_umath*.so", "numpy.libs/*.so*")
        return [box.path(name) for pattern in patterns for name in box.glob(f"{INSTALLED}/{pattern}")]
    library, numpy = processor.engine(), importlib.util.find_spec("numpy")
    found = [os.path.join(library, name) for name in os.listdir(library)] if library else []
    if numpy is not None and numpy.origin is not None:
        core = os.path.join(os.path.dirname(numpy.origin), "_core")
        found += [os.path.join(core, name) for name in os.listdir(core) if name.startswith("_multiarray_umath")]
    return sorted(path for path in found if path.endswith(".so"))


def alignment(path: str) -> int | None:
    """The least of the loadable segments of a 64-bit little-endian ELF file; None: it is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
                return None
            offset, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
            if size < 56:
                return None
            file.seek(offset)
            table = file.read(size * count)
    except OSError:
        return None
    rows = [table[at : at + size] for at in range(0, len(table) - size + 1, size)]
    loaded = [struct.unpack_from("<Q", row, 48)[0] for row in rows if struct.unpack_from("<I", row)[0] == _LOAD]
    return min(loaded, default=None)
