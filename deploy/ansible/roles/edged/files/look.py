"""What a box is, as one JSON object: run by its own Python before anything is changed. Standard library only."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from typing import Any


def free_mb(path: str) -> int:
    """Of the file system that `path` is on, or will be."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize // 1_000_000


def device(path: str) -> int:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.stat(path).st_dev


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def systemd() -> int:
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout
        return int(said.split()[1]) if os.path.isdir("/run/systemd/system") else 0
    except (OSError, IndexError, ValueError):
        return 0


def memory_mb() -> int:
    for line in read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024 // 1_000_000
    return 0


def whole(release: str) -> Any:
    """The files of a release that was finished; none when it was not."""
    try:
        return json.loads(read(f"/opt/edged/releases/{release}/manifest.json"))["files"]
    except (ValueError, KeyError, TypeError):
        return {}


release, model = sys.argv[1:3]
current = os.path.basename(os.readlink("/opt/edged/current")) if os.path.islink("/opt/edged/current") else ""
release = release or current
needs = {
    "python3-venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "libgomp1": ctypes.util.find_library("gomp"),
    "libsystemd0": ctypes.util.find_library("systemd"),
}
print(
    json.dumps(
        {
            "machine": platform.machine(),
            "python": ".".join(map(str, sys.version_info[:2])),
            "root": os.geteuid() == 0,
            "systemd": systemd(),
            "missing": sorted(name for name, found in needs.items() if not found),
            "memory_mb": memory_mb(),
            "one_disk": device("/opt/edged") == device("/var/lib/edged/models"),
            "free_mb": {"/opt": free_mb("/opt/edged"), "models": free_mb("/var/lib/edged/models")},
            "time": time.time(),
            "current": current,
            "managed": os.path.isfile("/opt/edged/bin/edged-deploy"),
            "release": {"there": os.path.isdir(f"/opt/edged/releases/{release}"), "files": whole(release)},
            "model_bytes": size(model) if model else None,
            "kernel": read("/proc/cmdline"),
            "cmdline": next((p for p in ("/boot/firmware/cmdline.txt", "/boot/cmdline.txt") if os.path.isfile(p)), ""),
        }
    )
)
