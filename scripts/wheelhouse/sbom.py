"""A CycloneDX 1.5 bill of materials: the packages by their own metadata, and what is compiled into the engine."""

from __future__ import annotations

import uuid
import zipfile
from collections.abc import Iterable, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from wheelhouse import layout

SPACE: Final = uuid.UUID("5d0f3b2e-3a4c-5d0e-9a61-0b6f4f2f6d11")
"""For serial numbers: the same wheels, the same number."""


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))


def licence(told: Message) -> str | None:
    """As the package tells it: the expression, the field if it is short, or the classifiers."""
    field = str(told.get("License-Expression") or told.get("License") or "").strip()
    if field and len(field) <= 80 and "\n" not in field:
        return field
    classifiers = [str(one).split(" :: ")[-1] for one in told.get_all("Classifier", []) if "License ::" in str(one)]
    return ", ".join(classifiers) or None


def package(wheels: Iterable[Path]) -> dict[str, Any]:
    """One component: a package with its files, of which a box installs one."""
    files = sorted(wheels)
    told, one = metadata(files[0]), layout.wheel_name(files[0])
    purl = f"pkg:pypi/{one.name}@{one.version}"
    out: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": one.name, "version": one.version, "purl": purl}
    if told.get("Summary"):
        out["description"] = str(told["Summary"])
    if name := licence(told):
        out["licenses"] = [{"license": {"name": name}}]
    out["components"] = [
        {
            "type": "file",
            "bom-ref": f"{purl}#{path.name}",
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": layout.digest(path)}],
        }
        for path in files
    ]
    return out


def compiled(engine: Mapping[str, str]) -> list[dict[str, Any]]:
    """What is inside the engine's wheel and is no Python package."""
    commit, llama, ggml = engine["llama_cpp_commit"], engine["llama_cpp_build"], engine["ggml_build"]
    where = "pkg:github/ggml-org/llama.cpp"
    return [
        {
            "type": "library",
            "bom-ref": f"{where}@{commit}",
            "name": "llama.cpp",
            "version": f"{llama} ({commit})",
            "purl": f"{where}@{commit}",
            "licenses": [{"license": {"id": "MIT"}}],
            "description": f"vendored by llama-cpp-python; ggml {ggml} with it",
        },
        {
            "type": "library",
            "bom-ref": "libc++",
            "name": "libc++, libc++abi, libunwind",
            "version": engine["clang"],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "description": "LLVM's C++ runtime as zig brings it, linked in; with the LLVM exception",
        },
    ]


def bill(wheels: Iterable[Path], *, arch: str, engine: Mapping[str, str], made: str) -> dict[str, Any]:
    """The document."""
    of: dict[str, list[Path]] = {}
    for path in sorted(wheels):
        of.setdefault(layout.wheel_name(path).name, []).append(path)
    own = package(of.pop("edged"))
    packages = [package(files) for files in of.values()]
    inside = compiled(engine)
    carrier = next(one["bom-ref"] for one in packages if one["name"] == "llama-cpp-python")
    content = "".join(layout.digest(path) for path in sorted(wheels))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(SPACE, content)}",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": {**own, "type": "application", "properties": [{"name": "edged:arch", "value": arch}]},
        },
        "components": [*packages, *inside],
        "dependencies": [
            {"ref": own["bom-ref"], "dependsOn": [one["bom-ref"] for one in packages]},
            {"ref": carrier, "dependsOn": [one["bom-ref"] for one in inside]},
        ],
    }
