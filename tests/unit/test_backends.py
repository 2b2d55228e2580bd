"""Builds of the engine whose CPU code lies in several libraries: made here of a few lines of C, loaded in a child."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edged.doctor import processor
from edged.doctor.processor import Probe, Processor
from edged.errors import EngineError
from edged.worker import backends

NEEDS_CC = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
LLAMA = """
#include <dlfcn.h>
#include <stdio.h>
static void *cpu;
void ggml_backend_load_all_from_path(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%%s/libggml-cpu-%s.so", directory);
    cpu = dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
void *ggml_backend_reg_by_name(const char *name) { return cpu; }
void *ggml_backend_reg_get_proc_address(void *reg, const char *name) { return dlsym(reg, name); }
const char *llama_print_system_info(void) { return "CPU : NEON = 1 | DOTPROD = 1 | "; }
"""
CPU = """
typedef unsigned long word;
int which(void) { return %d; }
void ggml_cpu_init(void) {}
void ggml_vec_dot_f32(int n, float *s, word a, const float *x, word b, const float *y, word c, int r) {
    *s = 0;
    for (int i = 0; i < n; i++) *s += x[i] * y[i];
}
"""
A76 = {"NEON": True, "DOTPROD": True}


def build(directory: Path, name: str, source: str, *options: str) -> None:
    file = directory / f"{name}.c"
    file.write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", directory / f"{name}.so", file, *options]
    subprocess.run(command, check=True, timeout=60)


@pytest.fixture
def engine(tmp_path: Path):
    """Called with the variant that would be taken."""

    def make(choice: str) -> Path:
        build(tmp_path, "libllama", LLAMA % choice, "-ldl")
        build(tmp_path, "libggml-cpu-armv8.0_1", CPU % 80)
        build(tmp_path, "libggml-cpu-armv8.2_2", CPU % 82)
        return tmp_path

    return make


def child(code: str, directory: Path) -> str:
    """In a process of its own: what is loaded stays loaded."""
    head = f"""
import ctypes
from edged.worker import backends
directory = {str(directory)!r}
lib = ctypes.CDLL(directory + "/libllama.so")
"""
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@NEEDS_CC
@pytest.mark.parametrize(("choice", "which"), [("armv8.0_1", "80"), ("armv8.2_2", "82")])
def test_the_variant_that_suits(engine, choice, which):
    code = """
print(backends.variant())
backends.load(lib, directory)
call = backends.function(lib, "which")
call.restype = ctypes.c_int
print(backends.variant(), call(), backends.function(lib, "nothing_like_it"))
"""
    assert child(code, engine(choice)).split() == ["None", choice, which, "None"]


@NEEDS_CC
def test_no_variant_suits(engine):
    code = """
try:
    backends.load(lib, directory)
except Exception as error:
    print(type(error).__name__, error)
"""
    said = child(code, engine("none"))
    assert said.startswith("EngineError this build of llama.cpp does not fit the processor")


@NEEDS_CC
def test_a_library_that_the_variants_need_is_missing(engine, tmp_path):
    """As libgomp on a bare system: that is said, not that the processor is wrong."""
    where = engine("armv8.2_2")
    gone = tmp_path / "gone"
    gone.mkdir()
    build(gone, "libgone", "int gone(void) { return 1; }")
    for name in ("armv8.0_1", "armv8.2_2"):
        source = f"int gone(void); int it(void) {{ return gone(); }}\n{CPU % 1}"
        build(where, f"libggml-cpu-{name}", source, f"-L{gone}", "-lgone")
    with pytest.raises(EngineError, match=r"CPU code cannot be loaded: libgone\.so"):
        raise EngineError(backends._refused(str(where)))
    probe = processor.probe(str(where))
    assert "libgone.so: cannot open shared object file" in probe.wrong


def test_a_build_without_variants(tmp_path):
    (tmp_path / "libggml-cpu.so").touch()
    assert not backends.separate(str(tmp_path))


@NEEDS_CC
def test_doctor_tries_the_variant_that_would_be_taken(engine):
    probe = processor.probe(str(engine("armv8.2_2")))
    assert probe == Probe(frozenset({"NEON", "DOTPROD"}), variant="armv8.2_2")
    (found,) = processor.judge(Processor(A76, probe))
    assert found.what == "the engine suits the processor (armv8.2_2): DOTPROD NEON"


@NEEDS_CC
def test_doctor_says_that_none_suits(engine):
    (found,) = processor.judge(Processor(A76, processor.probe(str(engine("none")))))
    assert (found.severity, found.what) == ("error", "the engine is a wrong build for this processor")
    assert found.why == "no variant of its code suits; the processor has NEON DOTPROD"
