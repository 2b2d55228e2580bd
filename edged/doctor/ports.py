"""What the service listens on: whether it does, and whether somebody else has it.

TCP by /proc/net/tcp (state 0A is LISTEN; the port is hexadecimal), with the uid of who listens; which process that is,
only root is told. Unix sockets by their files.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from edged.doctor import finding
from edged.doctor.box import Box, refused
from edged.doctor.finding import Finding
from edged.places import SOCKETS_AFRESH, absent

NAME: Final = "ports"
_LISTEN: Final = "0A"


class Port(Struct, frozen=True):
    """`uid` of who listens, None: nobody; `process` if it is told. `ours`: the uid of the service, if known."""

    key: str
    shown: str
    uid: int | None
    process: str = ""
    left: bool = False  # a socket file without anybody behind it
    gone: bool = False  # there is no such file, and the service or systemd listens there
    held: bool = False  # systemd listens there, for the service


def check(box: Box) -> list[Finding]:
    if not box.here:
        return [finding.info(NAME, "what listens is looked at on the box itself")]
    reply, ours = box.ask("ping"), _uid(box)
    return judge(_ports(box, ours), ours, answers=isinstance(reply, dict), stopped=box.held.stopped)


def _uid(box: Box) -> int | None:
    """Of the service: whoever made its control socket."""
    try:
        return os.stat(box.endpoint("control", box.config.control_endpoint).removeprefix("ipc://")).st_uid
    except OSError:
        return None


def _ports(box: Box, ours: int | None) -> list[Port]:
    config = box.config
    ends = [("listen.request", box.endpoint("request", end)) for end in config.request_endpoints]
    ends += [("listen.stream", box.endpoint("stream", end)) for end in config.stream_endpoints]
    ends += [("listen.control", box.endpoint("control", config.control_endpoint))]
    ends += [("metrics.listen", f"tcp://{config.metrics.listen}")] if config.metrics.listen else []
    listeners = {**listening(box.text("proc/net/tcp6") or ""), **listening(box.text("proc/net/tcp") or "")}
    out = []
    for key, end in ends:
        if end.startswith("ipc://"):
            path, held = end.removeprefix("ipc://"), box.held.has(end)
            gone = absent(path) and (held or ours is not None)
            out.append(Port(key, end, None, left=not held and refused(path), gone=gone, held=held))
        else:
            uid, inode = listeners.get(int(end.rpartition(":")[2]), (None, ""))
            out.append(Port(key, end, uid, process_of(box, inode) if inode else "", held=box.held.has(end)))
    return out


def listening(text: str) -> dict[int, tuple[int, str]]:
    """Port → uid and inode, of /proc/net/tcp or tcp6."""
    found = {}
    for line in text.splitlines()[1:]:
        row = line.split()
        if len(row) > 9 and row[3] == _LISTEN and row[7].isdigit():
            found[int(row[1].rpartition(":")[2], 16)] = (int(row[7]), row[9])
    return found


def process_of(box: Box, inode: str) -> str:
    """`python3 (1234)`; "" when it is not told."""
    for path in box.glob("proc/[0-9]*"):
        try:
            with os.scandir(box.path(f"{path}/fd")) as files:
                if any(os.readlink(file.path) == f"socket:[{inode}]" for file in files):
                    return f"{box.text(f'{path}/comm') or '?'} ({path.rpartition('/')[2]})"
        except OSError:
            continue
    return ""


def judge(ports: list[Port], ours: int | None, *, answers: bool, stopped: tuple[str, ...] = ()) -> list[Finding]:
    """`stopped`: units of the sockets that do not listen; systemd leaves their files."""
    out = []
    left = [port.shown for port in ports if port.left]
    if left:
        why = f"stopped: {' and '.join(stopped)}" if stopped else "a daemon was killed and its sockets are left over"
        out.append(finding.warning(NAME, f"nobody listens at {', '.join(left)}", why, "sudo systemctl start edged"))
    gone = [port.shown for port in ports if port.gone]
    if gone:
        why = "the file was removed while the service runs; a restart of the service alone does not bring it back"
        out.append(finding.error(NAME, f"there is no {', '.join(gone)}", why, SOCKETS_AFRESH))
    for port in ports:
        tcp = port.shown.startswith("tcp://")
        by = port.process or (f"a process of user {port.uid}" if port.uid is not None else "")
        if tcp and port.uid is None and answers:
            do = "sudo systemctl restart edged; the log says when a port cannot be had"
            what = f"{port.shown} ({port.key}) is configured, and nobody listens there"
            out.append(finding.warning(NAME, what, "endpoints change at a restart only", do))
        elif tcp and port.uid is not None and not port.held and (port.uid != ours if ours is not None else not answers):
            do = f"stop it, or choose another port in {port.key}"
            out.append(finding.error(NAME, f"{port.shown} is taken by {by}", "the service cannot have it", do))
    if out:
        return out
    if not answers and any(port.held for port in ports):
        return [finding.ok(NAME, "systemd listens for the service; nobody else has a port of it")]
    if not answers:
        return [finding.ok(NAME, "nobody else has a port of the service")]
    return [finding.ok(NAME, f"it listens on {', '.join(dict.fromkeys(port.shown for port in ports))}")]
