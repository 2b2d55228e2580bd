"""zig's clang under the names that build systems call: `python zig.py ZIG cc|c++|ar|ranlib ARCH ARGUMENT…`.

zig takes a processor (-mcpu) where GCC and clang take an architecture: `-march=armv8.2-a+dotprod+fp16` becomes
`-mcpu=generic+v8_2a+dotprod+fullfp16`. What it does not know ends with an error: a feature left out would be slow code
that nobody notices.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

GLIBC: Final = "2.36"
"""Of Debian 12; later ones take what was linked against it."""

FEATURES: Final = {
    "dotprod": "dotprod",
    "fp16": "fullfp16",
    "sve": "sve",
    "sve2": "sve2",
    "i8mm": "i8mm",
    "sme": "sme",
}
"""Name of GCC and clang → zig's, as far as llama.cpp's variants go."""


class UnknownMarchError(ValueError):
    pass


def target(arch: str) -> str:
    return f"{arch}-linux-gnu.{GLIBC}"


def mcpu(march: str) -> str:
    """`armv8.2-a+dotprod` → `generic+v8_2a+dotprod`. Raises UnknownMarchError."""
    base, *features = march.split("+")
    version = re.fullmatch(r"armv(\d+)(?:\.(\d+))?-a", base)
    unknown = [name for name in features if name not in FEATURES]
    if version is None or unknown:
        raise UnknownMarchError(f"zig.py has no name for {' '.join(unknown) or base!r} of -march={march}: add it")
    major, minor = version[1], version[2]
    level = "v8a" if (major, minor or "0") == ("8", "0") else f"v{major}_{minor}a" if minor else f"v{major}a"
    return "+".join(["generic", level, *(FEATURES[name] for name in features)])


def translated(arguments: list[str]) -> list[str]:
    mark = "-march=arm"
    return [f"-mcpu={mcpu(one[len(mark) - 3 :])}" if one.startswith(mark) else one for one in arguments]


def main(zig: str, tool: str, arch: str, *arguments: str) -> None:
    rest = list(arguments)
    if tool in ("cc", "c++"):
        try:
            rest = ["-target", target(arch), *translated(rest)]
        except UnknownMarchError as error:
            sys.exit(str(error))
    os.execv(zig, [zig, tool, *rest])  # noqa: S606 - it takes this one's place


if __name__ == "__main__":
    main(*sys.argv[1:])
