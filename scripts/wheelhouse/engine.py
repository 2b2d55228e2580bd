"""llama-cpp-python, compiled once for every processor of an architecture (docs/adr/0024-one-wheel.md).

llama.cpp's CPU backend is built in all its variants, each a library of its own beside libllama; the fitting one is
loaded at run time (edged/worker/backends.py). The traps of the build:

* llama-cpp-python installs the target `ggml-cpu` alone; the variants go where CMAKE_INSTALL_BINDIR says.
* zig has no OpenMP library: `kmpc.c` stands between clang's calls and the box's libgomp, of which a stub is here for
  the linker. `openmp.cmake` gives them to the CPU variants.
* The build names the wheel after the build machine: it is renamed after the target.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wheelhouse import tools, zig
from wheelhouse.steps import HERE, StepError, cache, key, new_directory, run, say

SETTINGS: Final = {
    "GGML_BACKEND_DL": "ON",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
    "LLAVA_BUILD": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "CMAKE_INSTALL_BINDIR": "llama_cpp/lib",
    "CMAKE_INSTALL_LIBDIR": "llama_cpp/lib",
    "CMAKE_INSTALL_INCLUDEDIR": "llama_cpp/include",
    "CMAKE_BUILD_TYPE": "Release",
}
GOMP: Final = ("GOMP_parallel", "GOMP_barrier", "GOMP_single_start", "omp_get_thread_num", "omp_get_num_threads")
TOOLCHAIN: Final = {
    "CMAKE_SYSTEM_NAME": "Linux",
    "CMAKE_SHARED_LINKER_FLAGS_INIT": "-s -Wl,--no-undefined",
    "CMAKE_MODULE_LINKER_FLAGS_INIT": "-s -Wl,--no-undefined",
}
PARTS: Final = ("zig.py", "kmpc.c", "omp.h", "openmp.cmake", "tools.txt")
SPARE: Final = (
    "lib/*.so.*.*.*",
    "lib/libllama.so.*",
    "lib/libllama-common*",
    "lib/libggml-base.so",
    "lib/cmake",
    "lib/pkgconfig",
    "include",
)
"""Below llama_cpp/. Loaded are libllama.so and libggml.so by path, libggml.so.0 and libggml-base.so.0 by name."""
VARIANTS: Final = {"aarch64": 8, "x86_64": 14}
"""How many CPU backends must be in the wheel."""


def wheel(arch: str) -> Path:
    """From the cache, or compiled (minutes)."""
    _, pin = tools.pins("sources.txt")["llama-cpp-python"]
    settings = json.dumps([SETTINGS, TOOLCHAIN])
    target = cache() / f"engine-{arch}-{key(arch, pin, settings, *((HERE / name).read_bytes() for name in PARTS))}"
    if target.exists():
        say(f"the engine for {arch} is compiled already")
    else:
        with new_directory(target) as half, tempfile.TemporaryDirectory(prefix="edged-wheelhouse-") as scratch:
            _build(arch, half, Path(scratch))
    return next(target.glob("*.whl"))


def _build(arch: str, out: Path, scratch: Path) -> None:
    source = tools.unpacked("llama-cpp-python", scratch / "source")
    toolchain(arch, compilers(arch, scratch / "bin"), scratch)
    settings = {**SETTINGS, "CMAKE_TOOLCHAIN_FILE": str(scratch / "toolchain.cmake")}
    environment = {
        "PATH": tools.path(),
        "CMAKE_ARGS": " ".join(f"-D{name}={value}" for name, value in settings.items()),
        "CMAKE_GENERATOR": "Ninja",
        **zig_caches(scratch),
    }
    command = [tools.python(), *tools.PIP, "wheel", "-v", "--no-deps", "--no-build-isolation", "-w", scratch / "out"]
    run(f"compiling the engine for {arch}, every CPU variant (some minutes, once)", [*command, source], env=environment)
    built = next((scratch / "out").glob("*.whl"))
    tag = f"manylinux_{zig.GLIBC.replace('.', '_')}_{arch}"
    run("naming it", [tools.python(), "-m", "wheel", "tags", "--remove", f"--platform-tag={tag}", built])
    done = next((scratch / "out").glob("*.whl"))
    check(done, arch)
    slim(done, out, scratch / "slim")
    (out / "origin.json").write_text(json.dumps(_origin(source)))


def origin(built: Path) -> dict[str, str]:
    """What the wheel in the cache was built from."""
    told: dict[str, str] = json.loads((built.parent / "origin.json").read_text())
    return told


def _origin(source: Path) -> dict[str, str]:
    vendored = source / "vendor/llama.cpp"
    changes = (source / "CHANGELOG.md").read_text()
    pin, _ = tools.pins("sources.txt")["llama-cpp-python"]
    return {
        "llama_cpp_python": pin,
        "llama_cpp_commit": between(changes[changes.index(f"[{pin}]") :], "llama.cpp@", " "),
        "llama_cpp_build": _cmake_version(vendored / "CMakeLists.txt", "LLAMA_VERSION"),
        "ggml_build": _cmake_version(vendored / "ggml/CMakeLists.txt", "GGML_VERSION"),
        "clang": _clang(),
    }


def _clang() -> str:
    said = subprocess.run([_zig(), "cc", "--version"], capture_output=True, text=True, check=True).stdout
    return between(said, "clang version ", "\n")


def _zig() -> Path:
    zigs = list(tools.python().parents[1].glob("lib/python*/site-packages/ziglang/zig"))
    if len(zigs) != 1:
        raise StepError(f"no zig in {tools.python().parents[1]}: remove that directory and try again")
    return zigs[0]


def _cmake_version(file: Path, name: str) -> str:
    text = file.read_text()
    return ".".join(between(text, f"set({name}_{part} ", ")") for part in ("MAJOR", "MINOR", "PATCH"))


def between(text: str, before: str, after: str) -> str:
    """Raises StepError."""
    _, there, rest = text.partition(before)
    if not there or after not in rest:
        raise StepError(f"no {before!r} where it should be: has llama-cpp-python changed?")
    return rest.partition(after)[0].split()[0]


def slim(built: Path, out: Path, scratch: Path) -> None:
    """The same wheel without what no box needs: it has no links, so CMake's chains of them are copies."""
    run("unpacking it", [tools.python(), "-m", "wheel", "unpack", built, "--dest", scratch])
    root = next(scratch.iterdir())
    for pattern in SPARE:
        for path in root.glob(f"llama_cpp/{pattern}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    run("packing it again", [tools.python(), "-m", "wheel", "pack", root, "--dest-dir", out])


def check(built: Path, arch: str) -> None:
    """Raises StepError unless all the variants are in it."""
    with zipfile.ZipFile(built) as archive:
        found = [name for name in archive.namelist() if name.startswith("llama_cpp/lib/libggml-cpu-")]
    if len(found) != VARIANTS[arch]:
        raise StepError(f"{built.name} has {len(found)} CPU variants, not {VARIANTS[arch]}: {' '.join(found)}")


def compilers(arch: str, directory: Path) -> dict[str, Path]:
    """Commands that build systems can call: cc, c++, ar, ranlib."""
    directory.mkdir(parents=True)
    clang = _zig()
    out = {}
    for tool in ("cc", "c++", "ar", "ranlib"):
        script = directory / tool
        script.write_text(f'#!/bin/sh\nexec {tools.python()} -I -S {HERE / "zig.py"} {clang} {tool} {arch} "$@"\n')
        script.chmod(0o755)
        out[tool] = script
    return out


def zig_caches(scratch: Path) -> dict[str, str]:
    return {"ZIG_GLOBAL_CACHE_DIR": str(cache() / "zig"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig")}


def stub(cc: Path, soname: str, functions: Sequence[str], target: Path, env: dict[str, str]) -> None:
    """A library for the linker alone: the box has the real one."""
    source = target.with_suffix(".c")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in functions))
    run(f"a stub of {soname}", [cc, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", target, source], env=env)


def toolchain(arch: str, tool: Mapping[str, Path], scratch: Path) -> None:
    """`toolchain.cmake`, and what it names."""
    env = zig_caches(scratch)
    kmpc = scratch / "kmpc.o"
    stub(tool["cc"], "libgomp.so.1", GOMP, scratch / "libgomp.so", env)
    run("OpenMP's calls", [tool["cc"], "-O2", "-fPIC", "-Wall", "-Wextra", "-c", HERE / "kmpc.c", "-o", kmpc], env=env)
    values = {
        **TOOLCHAIN,
        "CMAKE_SYSTEM_PROCESSOR": arch,
        "CMAKE_C_COMPILER": tool["cc"],
        "CMAKE_CXX_COMPILER": tool["c++"],
        "CMAKE_AR": tool["ar"],
        "CMAKE_RANLIB": tool["ranlib"],
        "CMAKE_PROJECT_ggml_INCLUDE": HERE / "openmp.cmake",
        "EDGED_OPENMP_INCLUDE": HERE,
        "EDGED_OPENMP_LIBRARIES": f"{kmpc};{scratch}/libgomp.so",
    }
    lines = [f'set({name} "{value}")\n' for name, value in values.items()]
    (scratch / "toolchain.cmake").write_text("".join(lines))
