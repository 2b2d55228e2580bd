"""The model files of the profiles: there, whole, readable by the service, and the ones that the configuration means.

Hashing takes longer than a doctor may (half a minute from a card): sums that are known already are compared, those of
the running daemon and of `edgectl model`; else `edgectl model verify` is the thing to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from edged.doctor import finding, owners
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.errors import ModelFileError
from edged.models import checked, room
from edged.system import gguf

NAME: Final = "model"

GET: Final = "edgectl model list, edgectl model pull NAME; without a network: edgectl model import FILE"
AGAIN: Final = "copy or pull it again; `edgectl model verify` tells whether it is whole"


class File(Struct, frozen=True):
    """`wrong`, `kind`: of ModelFileError, or "". `denied`: who of the service and of us may not read it."""

    profile: str
    path: str
    size: int = 0
    wrong: str = ""
    kind: str = ""
    denied: str = ""
    meant: str | None = None  # the sum that the configuration names
    known: str | None = None  # the sum that was made of it


def check(box: Box) -> list[Finding]:
    files: dict[str, File] = {}
    for profile in box.config.profiles:
        path = profile.model or box.config.model.path
        files.setdefault(path, look(box, profile.name, path, None if profile.model else box.config.model.sha256))
    return [one for file in files.values() for one in judge(file, best=file.profile == box.config.profiles[0].name)]


def look(box: Box, profile: str, path: str, meant: str | None) -> File:
    at = box.path(path)
    denied = owners.barred(box, path)
    try:
        header = gguf.check(at)
    except ModelFileError as error:
        return File(profile, path, wrong=str(error).replace(at, path), kind=error.kind, denied=denied)
    except OSError as error:
        return File(profile, path, wrong=error.strerror or str(error), kind="unreadable", denied=denied)
    entry = checked.lookup(Path(at))
    known = entry.sha256 if entry is not None else _running(box.ask("status"), path)
    return File(profile, path, header.file_bytes, denied=denied, meant=meant, known=known)


def _running(status: dict[str, Any] | str, path: str) -> str | None:
    model = status.get("model") if isinstance(status, dict) else None
    if isinstance(model, dict) and model.get("file") == os.path.basename(path):
        return model.get("sha256")
    return None


def judge(file: File, *, best: bool) -> list[Finding]:
    """`best`: it is the first profile's; a smaller one's bad file is passed over."""
    name = f"{file.path} (profile {file.profile})"
    if file.denied:
        do = f"sudo chown -R edged: {os.path.dirname(file.path)}; or copy it: sudo edgectl model import {file.path}"
        return [finding.error(NAME, f"{name}: {file.denied}", "the worker cannot load it", do)]
    if file.kind == "unreadable" or file.wrong.endswith("Permission denied"):
        why = file.wrong.removeprefix(f"{file.path}: ")
        return [finding.unknown(NAME, f"{name}: {why}", do="look as root: sudo edgectl doctor")]
    if file.wrong:
        make = finding.error if best else finding.warning
        why = "nothing can be answered" if best else "that profile is left out when heat or memory want it"
        return [make(NAME, f"{file.wrong} (profile {file.profile})", why, GET if file.kind == "missing" else AGAIN)]
    if file.meant and file.known and file.meant != file.known:
        what = f"{name}: sha256 is {file.known[:12]}…, model.sha256 says {file.meant[:12]}…"
        do = f"{AGAIN}; if the file is meant: edgectl model use NAME"
        return [finding.error(NAME, what, "the service refuses it", do)]
    if file.meant and not file.known:
        do = "edgectl model verify"
        return [finding.info(NAME, f"{name}: {room.mb(file.size)}, whole; its sha256 is not compared here", do=do)]
    same = f", sha256 {file.known[:12]}… as configured" if file.meant and file.known else ""
    return [finding.ok(NAME, f"{name}: {room.mb(file.size)}, whole{same}")]
