"""systemd-python, of which there are only sources: compiled for Debian's Pythons and the target, linked against a stub.

The list of extensions is that of its setup.py, which would compile for this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from wheelhouse import debian, tools, zig
from wheelhouse.engine import compilers, stub, zig_caches
from wheelhouse.steps import HERE, PYTHONS, cache, key, new_directory, run, say

EXTENSIONS: Final = {
    "_journal": ("_journal.c", "pyutil.c"),
    "_reader": ("_reader.c", "pyutil.c", "strv.c"),
    "_daemon": ("_daemon.c", "pyutil.c", "util.c"),
    "id128": ("id128.c", "pyutil.c"),
    "login": ("login.c", "pyutil.c", "strv.c"),
}
PARTS: Final = ("systemd.py", "zig.py", "tools.txt", "sources.txt")


def wheels(arch: str) -> list[Path]:
    """One for each Python; from the cache, or compiled (seconds)."""
    target = cache() / f"systemd-{arch}-{key(arch, *PYTHONS, *((HERE / name).read_bytes() for name in PARTS))}"
    if target.exists():
        say(f"systemd-python for {arch} is compiled already")
    else:
        with new_directory(target) as half, tempfile.TemporaryDirectory(prefix="edged-wheelhouse-") as scratch:
            for version in PYTHONS:
                _build(arch, version, half, Path(scratch) / version)
    return sorted(target.glob("*.whl"))


def _build(arch: str, version: str, out: Path, scratch: Path) -> None:
    pin, _ = tools.pins("sources.txt")["systemd-python"]
    source = tools.unpacked("systemd-python", scratch / "source")
    headers = debian.headers(arch, version)
    env, cc = zig_caches(scratch), compilers(arch, scratch / "bin")["cc"]
    root = scratch / "wheel"
    shutil.copytree(source / "systemd", root / "systemd", ignore=shutil.ignore_patterns("*.c", "*.h", "test"))
    tag = f"cp{version.replace('.', '')}"
    machine = f"{arch}-linux-gnu"
    include = [f"usr/include/python{version}", "usr/include", f"usr/include/{machine}/python{version}"]
    flags = [
        "-std=gnu99",
        "-O2",
        "-fPIC",
        "-DNDEBUG",
        f'-DPACKAGE_VERSION="{pin}"',
        "-DLIBSYSTEMD_VERSION=252",
        f"-I{source}",
        *(f"-I{headers / one}" for one in include[:1]),
        f"-I{headers / include[2]}",
        f"-idirafter{headers / include[1]}",
    ]
    objects: dict[str, Path] = {}
    for name in sorted({one for sources in EXTENSIONS.values() for one in sources}):
        objects[name] = scratch / f"{name}.o"
        command = [cc, *flags, "-c", source / "systemd" / name, "-o", objects[name]]
        run(f"systemd-python for Python {version}: {name}", command, env=env)
    library = scratch / "libsystemd.so"
    stub(cc, "libsystemd.so.0", _wanted(list(objects.values())), library, env)
    for name, sources in EXTENSIONS.items():
        built = root / "systemd" / f"{name}.cpython-{tag[2:]}-{machine}.so"
        parts = [objects[one] for one in sources]
        run(f"linking {built.name}", [cc, "-shared", "-s", "-o", built, *parts, library], env=env)
    info = root / f"systemd_python-{pin}.dist-info"
    info.mkdir()
    shutil.copy(source / "PKG-INFO", info / "METADATA")
    shutil.copy(source / "LICENSE.txt", info)
    platform = f"manylinux_{zig.GLIBC.replace('.', '_')}_{arch}"
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: edged\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-{platform}\n"
    )
    run("packing it", [tools.python(), "-m", "wheel", "pack", root, "--dest-dir", out])


def _wanted(objects: list[Path]) -> list[str]:
    """The functions of libsystemd that are called, as the linker will look for them."""
    found = set()
    for one in objects:
        names = subprocess.run(["nm", "--undefined-only", one], capture_output=True, text=True, check=True).stdout
        found |= {line.split()[-1] for line in names.splitlines() if line.split()[-1].startswith("sd_")}
    return sorted(found)
