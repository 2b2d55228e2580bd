"""Who may read, change and use what: configuration, state (which holds text), sockets, what runs; and whether the user
who asks may use the service.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from msgspec import Struct

from edged.doctor import finding, keys, owners, strangers, unitfiles
from edged.doctor.box import Box
from edged.doctor.finding import Finding
from edged.system import asker

PERMISSIONS: Final = "permissions"
GROUPS: Final = "groups"

RELEASES: Final = ("/opt/edged/releases", "/opt/edged/current/venv/bin/edged")

UNITS_WHY: Final = "whoever may write there chooses what systemd starts"
ADDED: Final = (keys.SERVER_WHY, keys.CLIENTS_WHY, UNITS_WHY)
"""Where another file beside those that are there does harm, too."""


class Held(Struct, frozen=True):
    """A file or directory of the service. `forbidden`: bits that its mode should not have; `mode` None: denied.

    That others may write is an error; that they may read is one where text or a socket lies open (`grave`).
    """

    path: str
    what: str
    forbidden: int
    why: str
    mode: int | None
    owner: int = 0
    grave: bool = True


# ---- permissions --------------------------------------------------------------------------------------------------


def check_permissions(box: Box) -> list[Finding]:
    runtime, state = box.runtime_dir, box.state_dir
    text = "it holds prompts and answers"
    config = box.config.path if box.config.path != "defaults" else ""
    wanted = [
        (config, "configuration", 0o022, "whoever may write it chooses the model, and who may ask"),
        (state, "state directory", 0o027, text),
        (os.path.join(state, "sessions.db"), "transcripts", 0o077, text),
        (os.path.join(state, "kv"), "snapshots", 0o077, text),
        (runtime, "runtime directory", 0o002, "whoever may write there can put a socket of their own in its place"),
        (os.path.join(runtime, "request.sock"), "request socket", 0o007, "every local user may ask"),
        (os.path.join(runtime, "stream.sock"), "stream socket", 0o007, "every local user may listen"),
        (os.path.join(runtime, "control.sock"), "control socket", 0o007, "every local user may drain and reload it"),
        (box.config.model_path, "model", 0o022, "whoever may write it can have the worker load anything"),
    ]
    seen = [_held(box, *one) for one in wanted if one[0]]
    known = strangers.ours(box)
    found: dict[str, tuple[strangers.Open, str]] = {}
    for path, why in _replaceable(box, config):
        for one in strangers.on_the_way(box, path, known, adding=why in ADDED):
            found.setdefault(one.path, (one, why))
    service = owners.user(box) if box.installed else None
    blocked = owners.barred(box, config) if config else ""
    return judge_permissions(
        [one for one in seen if one is not None],
        None if service is None else service.uid,
        state,
        blocked,
        strangers.told(PERMISSIONS, found),
    )


def _replaceable(box: Box, config: str) -> list[tuple[str, str]]:
    """Directories of what others should not replace, and what that would mean."""
    _, key, clients = keys.where(box)
    out = [
        (os.path.dirname(config), "whoever may write there can replace the configuration"),
        (os.path.dirname(key), keys.SERVER_WHY),
        (clients, keys.CLIENTS_WHY),
        (os.path.dirname(box.config.model_path), "whoever may write there can have the worker load anything"),
    ]
    out += [(path, "whoever may write there chooses the program that runs as the service") for path in RELEASES]
    out += [(os.path.dirname(path), UNITS_WHY) for path in unitfiles.texts(box)]
    return [(os.path.abspath(path) if box.here else path, why) for path, why in out if path]


def _held(box: Box, path: str, what: str, forbidden: int, why: str) -> Held | None:
    """None: it is not there."""
    try:
        status = os.stat(box.path(path))
    except FileNotFoundError:
        return None
    except OSError:
        return Held(path, what, forbidden, why, None)
    sticky = status.st_mode & stat.S_ISVTX
    forbidden = forbidden & ~0o022 if sticky else forbidden
    grave = not stat.S_ISDIR(status.st_mode) or what == "snapshots"
    return Held(path, what, forbidden, why, stat.S_IMODE(status.st_mode), status.st_uid, grave)


def judge_permissions(
    seen: list[Held], service: int | None, state: str, blocked: str, replaceable: list[Finding]
) -> list[Finding]:
    """`service`: the uid of the service's user, if it is one of the system's. `blocked`: why it cannot read its
    configuration. `replaceable`: where others may put something of their own."""
    out = list(replaceable)
    if blocked:
        do = "sudo chgrp edged /etc/edged/config.yaml; sudo chmod 0640 /etc/edged/config.yaml"
        out.append(finding.error(PERMISSIONS, f"configuration: {blocked}", "the service does not start with it", do))
    hidden = [one.path for one in seen if one.mode is None]
    for one in seen:
        if one.mode is not None and one.mode & one.forbidden:
            what = f"{one.what} {one.path} is {one.mode:04o}"
            do = f"sudo chmod {one.mode & ~one.forbidden:04o} {one.path}"
            make = finding.error if one.grave or one.mode & one.forbidden & 0o022 else finding.warning
            out.append(make(PERMISSIONS, what, one.why, do))
        if service is not None and one.path == state and one.owner != service:
            what = f"state directory {one.path} belongs to user {one.owner}, the service is user {service}"
            do = f"sudo chown -R edged:edged {one.path}"
            out.append(finding.error(PERMISSIONS, what, "it cannot write there", do))
    if hidden:
        out.append(
            finding.unknown(PERMISSIONS, f"not allowed to look at {', '.join(hidden)}", do="sudo edgectl doctor")
        )
    good = sum(one.mode is not None for one in seen)
    return out or [finding.ok(PERMISSIONS, f"{good} files and directories are closed to others")]


# ---- the user who asks --------------------------------------------------------------------------------------------


class Asker(Struct, frozen=True):
    """`member`: the group file says so. `group` "": no such socket. `join`: how to get into it."""

    name: str
    root: bool
    socket: str
    group: str
    allowed: bool
    member: bool = False
    join: str = ""


def check_groups(box: Box) -> list[Finding]:
    if not box.here:
        return [finding.info(GROUPS, "who may ask is looked at on the box itself")]
    name = asker.name() or f"user {asker.uid()}"
    sockets = {"request": box.config.request_endpoints[0], "control": box.config.control_endpoint}
    ends = {socket: box.endpoint(socket, endpoint) for socket, endpoint in sockets.items()}
    askers = [_asker(box, name, socket, end.removeprefix("ipc://")) for socket, end in ends.items() if "ipc:" in end]
    return judge_groups(askers)


def _asker(box: Box, name: str, socket: str, path: str) -> Asker:
    root = os.geteuid() == 0
    try:
        gid = os.stat(path).st_gid
    except FileNotFoundError:
        return Asker(name, root, socket, "", allowed=False)
    except PermissionError:  # the directory is for the group too
        gid = os.stat(os.path.dirname(path)).st_gid
    group = owners.group_name(box, gid)
    member = gid in owners.members(box, name)
    return Asker(name, root, socket, group, allowed=os.access(path, os.W_OK), member=member, join=asker.join(group))


def judge_groups(askers: list[Asker]) -> list[Finding]:
    there = [one for one in askers if one.group]
    if not there:
        return [finding.info(GROUPS, "there are no sockets: the service does not run")]
    out = []
    for one in there:
        if one.allowed:
            continue
        who = f"{one.name} may not use the {one.socket} socket"
        make = finding.warning if one.socket == "request" else finding.info
        why = "needed to ask" if one.socket == "request" else "only operators need it: drain, reload, requests"
        if one.member:
            out.append(make(GROUPS, f"{who} yet", f"in group {one.group} since this login began", "log in anew"))
        else:
            out.append(make(GROUPS, who, why, f"{one.join}, then log in anew"))
    if out:
        return out
    if there[0].root:
        groups = " and ".join(dict.fromkeys(one.group for one in there))
        return [finding.ok(GROUPS, f"root may use the sockets; others need group {groups}")]
    return [finding.ok(GROUPS, f"{there[0].name} may use the sockets")]
