"""The pure parts of `make wheelhouse`, and what pip makes of its result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from harness import until
from wheelhouse import debian, engine, layout, packages, sbom, steps, systemd, tools, zig
from wheelhouse.layout import IncompleteError, WheelName

REPOSITORY = Path(__file__).parents[2]

# ---- the compiler's names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("march", "mcpu"),
    [
        ("armv8-a", "generic+v8a"),
        ("armv8.2-a+dotprod+fp16", "generic+v8_2a+dotprod+fullfp16"),
        ("armv8.6-a+dotprod+fp16+sve+i8mm+sve2", "generic+v8_6a+dotprod+fullfp16+sve+i8mm+sve2"),
        ("armv9.2-a+sme", "generic+v9_2a+sme"),
        ("armv9-a", "generic+v9a"),
    ],
)
def test_an_architecture_as_zig_has_it(march, mcpu):
    assert zig.mcpu(march) == mcpu


@pytest.mark.parametrize("march", ["armv8.2-a+crypto", "native", "cortex-a76", "armv8.2-a+dotprod+"])
def test_what_has_no_name_is_not_left_out(march):
    with pytest.raises(zig.UnknownMarchError, match="add it"):
        zig.mcpu(march)


def test_other_arguments_stay():
    given = ["-march=armv8.2-a+dotprod", "-O3", "-mavx2", "-march=x86-64-v2", "-c", "a.c"]
    assert zig.translated(given) == ["-mcpu=generic+v8_2a+dotprod", *given[1:]]
    assert zig.target("aarch64") == "aarch64-linux-gnu.2.36"


def test_the_key_is_of_all_parts():
    assert steps.key("ab", "c") != steps.key("a", "bc") != steps.key(b"abc")


def test_a_step_that_fails_shows_the_end_of_its_output():
    with pytest.raises(steps.StepError) as failed:
        steps.run("a try", ["sh", "-c", "seq 100; echo no room left >&2; exit 3"])
    said = str(failed.value).splitlines()
    assert said[0] == "a try: failed"
    assert said[1] == "72"
    assert "no room left" in said


def test_what_is_interrupted_leaves_no_compiler_behind(tmp_path):
    """As Ctrl-C does: the child of the child ends too."""
    mark = tmp_path / "pid"
    code = f"from wheelhouse import steps; steps.run('it', ['sh', '-c', 'sh -c \\'echo $$ >{mark}; sleep 60\\'; true'])"
    path = {**os.environ, "PYTHONPATH": str(REPOSITORY / "scripts")}
    process = subprocess.Popen([sys.executable, "-c", code], env=path, stderr=subprocess.DEVNULL)
    until(lambda: mark.exists() and mark.read_text().strip(), "the child")
    process.send_signal(signal.SIGINT)
    process.wait(20)
    until(lambda: not Path(f"/proc/{mark.read_text().strip()}").exists(), "its end")


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "made"
    with contextlib.suppress(ZeroDivisionError), steps.new_directory(target) as half:
        (half / "a").touch()
        half.joinpath(str(1 / 0))
    assert list(tmp_path.iterdir()) == []
    for name in ("first", "second"):
        with steps.new_directory(target) as half:
            (half / name).touch()
    assert [path.name for path in target.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [target]


# ---- what is pinned ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools.txt", "sources.txt", "packages.txt"])
def test_pins_have_hashes(name):
    pins = tools.pins(name)
    assert pins
    for package, (version, line) in pins.items():
        assert version[0].isdigit(), package
        assert "--hash=sha256:" in line, package


def test_all_that_edged_needs_is_pinned():
    """A requirement that pyproject.toml got and the lists have not: make wheelhouse-lock."""
    pinned = {**tools.pins("packages.txt"), **tools.pins("sources.txt")}
    wanted = [*packages.requirements(), *packages.OF_THE_ENGINE]
    assert {packages.bare(one) for one in wanted} <= {layout.normal(name) for name in pinned}


def test_the_engine_is_the_one_of_pyproject():
    version, _ = tools.pins("sources.txt")["llama-cpp-python"]
    assert f'"llama-cpp-python=={version}"' in (REPOSITORY / "pyproject.toml").read_text()


def test_every_python_has_its_debian():
    assert set(debian.SUITE_OF) == set(steps.PYTHONS)
    assert set(debian.ARCH) == set(steps.ARCHES) == set(engine.VARIANTS)
    assert all(sources for sources in systemd.EXTENSIONS.values())


# ---- names, requirements, manifest ---------------------------------------------------------------------------------

NUMPY = "numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl"


def test_a_wheels_name():
    assert layout.wheel_name(f"x/{NUMPY}")[:3] == ("numpy", "2.4.6", "cp311")
    assert layout.wheel_name("Foo_Bar.baz-1-2-py3-none-any.whl") == WheelName("foo-bar-baz", "1", "py3", "none", "any")
    for bad in ("numpy-2.4.6.tar.gz", "numpy.whl", "a-1-py3-none.whl"):
        with pytest.raises(ValueError, match="not named like a wheel"):
            layout.wheel_name(bad)


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("a-1-py3-none-any.whl", "3.11 3.13"),
        ("a-1-py2.py3-none-any.whl", "3.11 3.13"),
        (NUMPY, "3.11"),
        ("a-1-cp313-cp313-manylinux_2_17_aarch64.whl", "3.13"),
        ("a-1-cp312-abi3-manylinux_2_28_aarch64.whl", "3.13"),
        ("a-1-cp36-abi3-manylinux_2_28_aarch64.whl", "3.11 3.13"),
        ("a-1-py3-none-manylinux_2_36_aarch64.whl", "3.11 3.13"),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.whl", ""),
        ("a-1-cp313-cp313t-manylinux_2_17_aarch64.whl", ""),
    ],
)
def test_whom_a_wheel_fits(file, fits):
    name = layout.wheel_name(file)
    assert [python for python in steps.PYTHONS if layout.fits(name, python, "aarch64")] == fits.split()


def test_a_package_without_a_wheel_for_one_python():
    with pytest.raises(IncompleteError, match=r"numpy has no wheel for Python 3\.13 on aarch64"):
        layout.check(["a-1-py3-none-any.whl", NUMPY], steps.PYTHONS, "aarch64")


def test_a_wheel_for_another_machine():
    with pytest.raises(IncompleteError, match="of no use on aarch64"):
        layout.check(["a-1-py3-none-any.whl", "a-1-cp311-cp311-linux_x86_64.whl"], steps.PYTHONS, "aarch64")


def test_requirements_have_all_files_of_a_package():
    text = layout.requirements({"B-2-py3-none-any.whl": "cc", NUMPY: "bb", NUMPY.replace("cp311", "cp313"): "aa"})
    assert text == "b==2 --hash=sha256:cc\nnumpy==2.4.6 --hash=sha256:aa --hash=sha256:bb\n"


def test_two_versions_of_one_package():
    with pytest.raises(IncompleteError, match="b is there as 1 and 2"):
        layout.requirements({"b-1-py3-none-any.whl": "a", "b-2-py3-none-any.whl": "b"})


def test_a_manifest():
    made = layout.manifest(
        version="1.2",
        arch="aarch64",
        pythons=("3.11",),
        glibc="2.36",
        engine={"llama_cpp_python": "0.3.36"},
        files={"wheels/b.whl": ("bb", 2), "wheels/a.whl": ("aa", 1)},
        made="2026-01-01T00:00:00Z",
    )
    assert made["format"] == 1
    assert made["llama_cpp_python"] == "0.3.36"
    assert list(made["files"].items()) == [
        ("wheels/a.whl", {"sha256": "aa", "bytes": 1}),
        ("wheels/b.whl", {"sha256": "bb", "bytes": 2}),
    ]


# ---- what pip makes of it ------------------------------------------------------------------------------------------


def wheel(directory: Path, name: str, *, version: str = "1.0", needs: str = "", licence: str = "MIT") -> Path:
    """A real one, of a module with that name."""
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    parts = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: {licence}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in parts.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*parts, f"{info}/RECORD"]))
    return path


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    files = [wheel(tmp_path / "wheels", "edged_fake", needs="edged_other"), wheel(tmp_path / "wheels", "edged_other")]
    (tmp_path / "requirements.txt").write_text(layout.requirements({one.name: layout.digest(one) for one in files}))
    return tmp_path


def install(house: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install", "--no-index"]
    return subprocess.run(
        [*command, "--find-links", "wheels", "--require-hashes", "-r", "requirements.txt", "--target", "installed"],
        cwd=house,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_pip_installs_it_from_there_alone(house):
    done = install(house)
    assert done.returncode == 0, done.stderr
    assert {"edged_fake.py", "edged_other.py"} <= {path.name for path in (house / "installed").iterdir()}


def test_pip_refuses_a_file_that_was_changed(house):
    wheel(house / "wheels", "edged_other", licence="changed")
    done = install(house)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (house / "installed").exists()


def test_sums_as_sha256sum_takes_them(house):
    files = [path for path in house.rglob("*") if path.is_file()]
    sums = layout.sums({str(path.relative_to(house)): layout.digest(path) for path in files})
    (house / "SHA256SUMS").write_text(sums)
    command = ["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"]
    assert subprocess.run(command, cwd=house, check=False).returncode == 0
    (house / "wheels/edged_other-1.0-py3-none-any.whl").write_bytes(b"")
    assert subprocess.run(command, cwd=house, capture_output=True, check=False).returncode == 1


def test_a_bill_of_materials(tmp_path):
    names = ("edged", "llama_cpp_python", "other")
    files = [wheel(tmp_path, name, version="2.0", licence=f"licence of {name}") for name in names]
    origin = {"llama_cpp_commit": "abc", "llama_cpp_build": "0.5.0", "ggml_build": "0.25.3", "clang": "22.1"}
    made = sbom.bill(files, arch="aarch64", engine=origin, made="2026-01-01T00:00:00Z")
    assert made == sbom.bill(files, arch="aarch64", engine=origin, made="2026-01-01T00:00:00Z")
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/edged@2.0"
    found = {one["name"]: one for one in made["components"]}
    assert list(found) == ["llama-cpp-python", "other", "llama.cpp", "libc++, libc++abi, libunwind"]
    assert found["other"]["licenses"] == [{"license": {"name": "licence of other"}}]
    assert found["other"]["components"][0]["hashes"] == [{"alg": "SHA-256", "content": layout.digest(files[2])}]
    known = {one["bom-ref"] for one in [*made["components"], made["metadata"]["component"]]}
    assert {ref for one in made["dependencies"] for ref in (one["ref"], *one["dependsOn"])} <= known
    json.dumps(made)


def test_a_long_licence_text_is_not_a_name(tmp_path):
    file = wheel(tmp_path, "long", licence="x" * 200 + "\nClassifier: License :: OSI Approved :: MIT License")
    assert sbom.licence(sbom.metadata(file)) == "MIT License"
