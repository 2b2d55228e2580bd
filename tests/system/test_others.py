"""Other boxes: Debian 13 (systemd 257), and one whose root is read-only. Each is installed, asked, restarted."""

from __future__ import annotations

import subprocess

from box import Box, box
from wheels import install, wheelhouse

UNITS = ("edged.service", "edged.socket", "edged-control.socket")


def serves(made: Box) -> None:
    status = made.ready()
    assert made.run("edgectl", "ask", "--max-tokens", "8", "--temperature", "0", "Say hello.").stdout.strip()
    assert status["warnings"] == []
    assert len({thread["core"] for thread in status["threads"]}) == len(status["threads"]) > 0
    assert made.show("ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}


def test_systemd_257() -> None:
    with box("trixie") as made:
        wheelhouse(made)
        made.boot()
        assert "systemd 257" in made.run("systemctl", "--version").stdout
        install(made)
        serves(made)
        assert made.run("systemd-analyze", "verify", *(f"/etc/systemd/system/{u}" for u in UNITS)).stderr == ""
        security = made.run("systemd-analyze", "security", "--threshold=15", "--no-pager", "edged.service").stdout
        assert float(security.rsplit("edged.service: ", 1)[1].split()[0]) <= 1.5
        assert made.journal("EDGED_EVENT=model_ready")[-1]["EDGED_PROFILE"] == "default"
        made.run("systemctl", "reload", "edged")
        made.until(lambda: made.journal("EDGED_EVENT=configuration_applied"), "the reload")
        made.write("/etc/edged/keys/server.key_secret", "not a key", 0o600)
        made.run("systemctl", "restart", "edged")
        serves(made)
        made.signal("KILL", made.main_pid())
        made.until(lambda: made.restarts() == 1 and made.status().get("ready"), "another daemon")


def test_a_root_that_is_read_only() -> None:
    """What has to be writable: /var/lib/edged, and /run as ever."""
    with box("bookworm") as made:
        wheelhouse(made)
        made.boot()
        install(made)
        made.halt()
        state = made.directory / "state"
        subprocess.run(["cp", "-a", made.root / "var/lib/edged", state], check=True)
        made.options = ("--read-only", f"--bind={state}:/var/lib/edged")
        made.boot()
        assert made.run("touch", "/etc/x", check=False).returncode
        serves(made)
        made.run("edgectl", "ask", "--session", "kitchen", "--max-tokens", "8", "Remember the number 7.")
        made.run("systemctl", "restart", "edged")
        serves(made)
        assert "kitchen" in made.run("edgectl", "session", "list").stdout
