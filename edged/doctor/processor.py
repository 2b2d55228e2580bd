"""The processor against the engine's build: what the build uses and the processor lacks kills the worker (SIGILL); what
the processor has and the build leaves unused makes it slow.

The processor is asked by getauxval(3) and, on x86, by glibc's `__x86_get_cpuid_feature_leaf` (2.33), which knows what
the kernel lets a process use; cpuinfo is never read: it shows a 32-bit view to 32-bit programs, and names of its own.
The build is asked by a child that loads the engine's library and computes with it: an illegal instruction ends the
child and is a finding. A build with several variants of its CPU code (edged/worker/backends.py) is asked for the one
that it would take. Bits are those of asm/hwcap.h (arm64) and of sys/platform/x86.h.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import subprocess
import sys
from typing import Final

from msgspec import Struct

from edged.doctor import finding
from edged.doctor.box import Box
from edged.doctor.finding import Finding

NAME: Final = "cpu-features"

HWCAP, HWCAP2 = 16, 26
ARM: Final = {
    "NEON": (HWCAP, 1),
    "ARM_FMA": (HWCAP, 1),
    "FP16_VA": (HWCAP, 10),
    "DOTPROD": (HWCAP, 20),
    "SVE": (HWCAP, 22),
    "MATMUL_INT8": (HWCAP2, 13),
    "SME": (HWCAP2, 23),
}
"""Name in the engine's system info → (entry of the auxiliary vector, bit)."""

EAX, EBX, ECX, EDX = range(4)
X86: Final = {
    "SSE3": (0, ECX, 0),
    "SSSE3": (0, ECX, 9),
    "FMA": (0, ECX, 12),
    "AVX": (0, ECX, 28),
    "F16C": (0, ECX, 29),
    "AVX2": (1, EBX, 5),
    "BMI2": (1, EBX, 8),
    "AVX512": (1, EBX, 16),
    "AVX512_VBMI": (1, ECX, 1),
    "AVX512_VNNI": (1, ECX, 11),
    "AMX_INT8": (1, EDX, 24 + 1),
    "AVX_VNNI": (6, EAX, 4),
    "AVX512_BF16": (6, EAX, 5),
}
"""Name → (leaf's index in glibc, register, bit)."""

MATTERS: Final = ("DOTPROD", "MATMUL_INT8", "AVX", "AVX2", "FMA", "F16C")
"""Worth another build when they are left unused: the kernels for quantized weights are written for them."""

COMPILE: Final = (
    "install a release with an engine for every board (docs/wheelhouse.md), or compile it here: "
    "pip install --force-reinstall --no-binary llama-cpp-python llama-cpp-python"
)
CHILD_S: Final = 3.0
UNFIT: Final = 78
"""The child's exit status when no variant suits."""
_PROBE: Final = """# libggml through libllama: opened by its own path it would be a second copy, with its own registry
import ctypes, os, re, sys
lib = sys.argv[1]
variants = sorted(name for name in os.listdir(lib) if re.fullmatch("libggml-cpu-.+[.]so", name))
code = "libggml-cpu.so"
llama = ctypes.CDLL(os.path.join(lib, "libllama.so"))
if variants:
    llama.ggml_backend_load_all_from_path(os.fsencode(lib))
    found = re.search("libggml-cpu-(.+)[.]so", open("/proc/self/maps").read())
    if found is None:
        for name in variants:
            ctypes.CDLL(os.path.join(lib, name))
        sys.exit(int(sys.argv[2]))
    code = found[0]
    print("variant", found[1], flush=True)
llama.llama_print_system_info.restype = ctypes.c_char_p
print(llama.llama_print_system_info().decode("utf-8", "replace"), flush=True)
cpu = ctypes.CDLL(os.path.join(lib, code))
cpu.ggml_cpu_init()
row = (ctypes.c_float * 256)(*([2.0] * 256))
out = ctypes.c_float()
cpu.ggml_vec_dot_f32(256, ctypes.byref(out), ctypes.c_size_t(0), row, ctypes.c_size_t(0), row, ctypes.c_size_t(0), 1)
print("computed", out.value, flush=True)
"""
COMPUTED: Final = "computed 1024.0"


class Probe(Struct, frozen=True):
    """`features`: what the build uses. `wrong`: how the child failed, in words; `illegal`: by SIGILL.
    `untried`: why there was no child. `variant`: of a build that has several; `unfit`: none of them suits."""

    features: frozenset[str] = frozenset()
    wrong: str = ""
    untried: str = ""
    illegal: bool = False
    variant: str = ""
    unfit: bool = False


class Processor(Struct, frozen=True):
    """`has`: name → whether the processor has it; {} when it does not say. `build` None: there is none, or (not `here`)
    it belongs to another box."""

    has: dict[str, bool]
    build: Probe | None
    here: bool = True


def check(box: Box) -> list[Finding]:
    return judge(look(box))


def look(box: Box) -> Processor:
    library = engine()
    build = probe(library) if box.here and library is not None else None
    return Processor(features(box), build, box.here)


def judge(processor: Processor) -> list[Finding]:
    build, has = processor.build, processor.has
    shown = " ".join(name for name, there in has.items() if there) or "unknown"
    if build is None:
        engine = (
            "no engine is installed beside this edgectl" if processor.here else "the engine is tried on the box itself"
        )
        return [finding.info(NAME, f"the processor has {shown}; {engine}")]
    if build.untried:
        do = "look as root: sudo edgectl doctor"
        return [finding.unknown(NAME, f"the engine could not be tried: {build.untried}", do=do)]
    lacking = sorted(name for name in build.features if has.get(name) is False)
    if build.illegal or lacking:
        what = f"the engine is a wrong build for this processor: {build.wrong or 'it uses ' + ' '.join(lacking)}"
        why = f"the worker dies with SIGILL; the processor has {shown}"
        return [finding.error(NAME, what, why, COMPILE)]
    if build.unfit:
        why = f"no variant of its code suits; the processor has {shown}"
        return [finding.error(NAME, "the engine is a wrong build for this processor", why, COMPILE)]
    if build.wrong:
        why = "the worker loads the same library"
        return [finding.error(NAME, f"the engine does not work: {build.wrong}", why, COMPILE)]
    unused = [name for name in MATTERS if has.get(name) and name not in build.features]
    if unused:
        what = f"the engine leaves {' '.join(unused)} of this processor unused"
        return [finding.warning(NAME, what, "prompts and answers take longer than they need", COMPILE)]
    if not has:
        return [finding.unknown(NAME, "the processor's features are unknown; the engine computes", do="nothing")]
    suits = f"the engine suits the processor{f' ({build.variant})' if build.variant else ''}"
    return [finding.ok(NAME, f"{suits}: {' '.join(sorted(build.features & has.keys()))}")]


# ---- the processor ----------------------------------------------------------------------------------------------


def features(box: Box) -> dict[str, bool]:
    if box.machine == "aarch64":
        words = {kind: box.auxiliary(kind) for kind in (HWCAP, HWCAP2)}
        bits = {name: (words[kind] or 0) >> bit & 1 for name, (kind, bit) in ARM.items()}
        return {} if words[HWCAP] is None else {name: bool(bit) for name, bit in bits.items()}
    if box.machine == "x86_64" and box.here and os.uname().machine == "x86_64":
        return _x86()
    return {}


def _x86() -> dict[str, bool]:
    """{} with a C library that does not tell."""
    ask = getattr(ctypes.CDLL(None), "__x86_get_cpuid_feature_leaf", None)
    if ask is None:
        return {}
    ask.restype, ask.argtypes = ctypes.POINTER(ctypes.c_uint * 8), [ctypes.c_uint]
    usable = {leaf: list(ask(leaf).contents)[4:] for leaf, _, _ in X86.values()}
    return {name: bool(usable[leaf][register] >> bit & 1) for name, (leaf, register, bit) in X86.items()}


# ---- the build --------------------------------------------------------------------------------------------------


def engine() -> str | None:
    """Directory of the engine's libraries; nothing of it is imported."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    library = os.path.join(os.path.dirname(spec.origin), "lib")
    return library if os.path.isdir(library) else None


def probe(library: str, seconds: float | None = None) -> Probe:
    """Default: `CHILD_S`."""
    patience = CHILD_S if seconds is None else seconds
    command = [sys.executable, "-I", "-S", "-c", _PROBE, library, str(UNFIT)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False, errors="replace")
    except OSError as error:
        return Probe(untried=error.strerror or str(error))
    except subprocess.TimeoutExpired:
        return Probe(wrong=f"it did not compute within {patience:g} s")
    used, found = uses(child.stdout), re.search(r"^variant (\S+)$", child.stdout, re.MULTILINE)
    if child.returncode == UNFIT:
        return Probe(unfit=True)
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        return Probe(used, f"{name} when it computes", illegal=name == "SIGILL")
    if child.returncode:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit {child.returncode}"]
        return Probe(used, last[0])
    variant = found[1] if found else ""
    return (
        Probe(used, variant=variant)
        if COMPUTED in child.stdout
        else Probe(used, f"it miscalculates: {child.stdout[-60:]!r}")
    )


def uses(info: str) -> frozenset[str]:
    """`CPU : NEON = 1 | DOTPROD = 1 | …` → {NEON, DOTPROD, …}."""
    return frozenset(re.findall(r"(\w+) = 1\b", info))
