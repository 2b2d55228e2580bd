"""`make run`: the whole road once. A daemon of its own, a prompt from another process, the status, a clean stop.

Exit status 0 when every step worked. Whatever happens (an error, Ctrl-C, even SIGKILL of this script) the daemon
does not stay behind; its log is shown when something failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec
import yaml

from edged import config
from edged.client import Client, NoAnswer, ReplyError
from edged.errors import ConfigError

PROMPT = "Name the three primary colors, then say what one gets by mixing two of them."
READY_S = 300.0
"""A slow SD card reads 10 MB/s; ten times what the embedded default then takes, and some room for a larger one."""
WITHIN = ("--deadline", "300")
STOP_GRACE_S = 15.0
PR_SET_PDEATHSIG = 1
BIN = Path(sys.executable).parent


class Failed(Exception):  # noqa: N818 - the name says it all
    """A step did not work."""


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    scratch = Path(tempfile.mkdtemp(prefix="edged-run-"))
    try:
        settings, file = _own_settings(scratch)
        with _daemon(file, scratch / "log", settings.limits.drain_s) as daemon:
            endpoint = settings.request_endpoints[0]
            _wait_ready(daemon, endpoint)
            _say(f"asking from another process: {PROMPT}")
            _show([*_edgectl(file), "ask", "--temperature", "0", "--max-tokens", "64", *WITHIN, PROMPT])
            _say("status")
            _show([*_edgectl(file), "status"])
            _say("stopping the daemon")
        _say("all of it worked")
    except (Failed, ReplyError, ConfigError, OSError) as error:
        _say(f"FAILED: {error}")
        _show_log(scratch / "log")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; the daemon is stopped")
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _own_settings(scratch: Path) -> tuple[config.Config, Path]:
    """config.yaml as it stands, but with sockets and state of its own, so that a running daemon is not disturbed."""
    data = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8")) or {}
    data |= {"runtime_dir": str(scratch / "run"), "state_dir": str(scratch / "state"), "listen": {}}
    (scratch / "run").mkdir(mode=0o700)
    (scratch / "state").mkdir(mode=0o700)
    file = scratch / "config.yaml"
    file.write_bytes(msgspec.json.encode(data))  # JSON is YAML
    return config.load(file), file


@contextlib.contextmanager
def _daemon(file: Path, log: Path, drain_s: float) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [BIN / "edged", "--config", file],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C reaches this script only, which stops the daemon in order
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no other thread runs here
        )
    try:
        yield process
        if process.poll() is not None:
            raise Failed(f"the daemon was gone (exit status {process.returncode})")
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(drain_s + STOP_GRACE_S)
        if process.returncode != 0:
            raise Failed(f"SIGTERM did not end the daemon with status 0 but {process.returncode}")
    finally:
        _put_down(process, drain_s)


def _put_down(process: subprocess.Popen[bytes], drain_s: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(drain_s + STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(daemon: subprocess.Popen[bytes], endpoint: str) -> None:
    begun, told = time.monotonic(), ""
    with Client(endpoint) as edged:
        while time.monotonic() - begun < READY_S:
            if daemon.poll() is not None:
                raise Failed(f"the daemon ended with status {daemon.returncode}")
            with contextlib.suppress(NoAnswer):
                status = edged.call("status", deadline_s=1.0)
                state = str(status.get("state"))
                if status.get("ready"):
                    _say(f"ready after {time.monotonic() - begun:.1f} s")
                    return
                if state == "unavailable":
                    raise Failed("the daemon cannot load the model")
                if state != told:
                    _say(f"the daemon answers: {state}")
                told = state
            time.sleep(0.1)
    raise Failed(f"not ready within {READY_S:.0f} s (last state: {told or 'no answer'})")


def _edgectl(file: Path) -> list[str]:
    return [str(BIN / "edgectl"), "--config", str(file)]


def _show(command: list[str]) -> None:
    """Passes the output on as it comes, unbuffered. Raises Failed on a bad status or silence."""
    seen = 0
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        while chunk := os.read(process.stdout.fileno(), 65536):
            seen += len(chunk.strip())
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
    if process.returncode != 0:
        raise Failed(f"{' '.join(command[:4])} … ended with status {process.returncode}")
    if not seen:
        raise Failed(f"{' '.join(command[:4])} … said nothing")


def _show_log(log: Path) -> None:
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace")
        sys.stderr.write(f"---- the daemon's log ----\n{text[-20_000:]}---- end of the log ----\n")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
    raise KeyboardInterrupt


def _say(text: str) -> None:
    sys.stdout.flush()
    sys.stdout.write(f"run: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
