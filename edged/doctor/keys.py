"""Keys for TCP: whether the box has one and clients have theirs; whether others could put in one of their own."""

from __future__ import annotations

import os
import stat
from typing import Final

from msgspec import Struct

from edged import places
from edged.doctor import finding, strangers
from edged.doctor.box import SYSTEM_RUNTIME, Box
from edged.doctor.finding import Finding
from edged.doctor.manager import SERVICE
from edged.keyring import SECRET_SUFFIX, SUFFIX

NAME: Final = "keys"

SERVER_KEY: Final = "/etc/edged/keys/server.key_secret"
CLIENTS: Final = "/etc/edged/clients"

SERVER_WHY: Final = "whoever may write there can put a server key of their own in its place"
CLIENTS_WHY: Final = "whoever may write there lets in whom they like"


class Keys(Struct, frozen=True):
    """`secret`: mode of the server's secret key; None: there is none, or it is denied. `tcp`: endpoints in the open."""

    tcp: list[str]
    insecure: bool
    path: str
    there: bool
    secret: int | None
    clients: int | None
    bad: list[str]  # client files that others may write
    strange: list[str] = []  # … and those that belong to somebody else
    secrets: bool = False  # secret keys lie among them
    old: bool = False  # systemd handed over another key than the one that lies there now
    replaceable: list[Finding] = []  # directories where others may put keys of their own


def check(box: Box) -> list[Finding]:
    tcp, path, directory = where(box)
    known = strangers.ours(box)
    found: dict[str, tuple[strangers.Open, str]] = {}
    for place, why in ((os.path.dirname(path), SERVER_WHY), (directory, CLIENTS_WHY)):
        for one in strangers.on_the_way(box, place, known, adding=True):
            found.setdefault(one.path, (one, why))
    own = strangers.look(box, path, known)
    if own is not None and not own.all:
        found.setdefault(path, (own, SERVER_WHY))
    names, bad, strange, secrets = _clients(box, directory, known)
    secret, there = None, box.exists(path)
    try:
        secret = stat.S_IMODE(os.stat(box.path(path)).st_mode)
    except PermissionError:
        there = True
    except OSError:
        pass
    insecure, told = box.config.security.allow_insecure_tcp, strangers.told(NAME, found)
    return judge(Keys(tcp, insecure, path, there, secret, names, bad, strange, secrets, _old(box, path), told))


def _old(box: Box, path: str) -> bool:
    """By the public halves, which lie beside the secrets; only root may see them. The service was given its copy when
    it was started, and cannot know."""
    given = box.text(f"run/credentials/{SERVICE}/{places.CREDENTIAL.removesuffix(SECRET_SUFFIX)}{SUFFIX}")
    there = box.text(f"{path.removesuffix(SECRET_SUFFIX)}{SUFFIX}")
    return given is not None and there is not None and given != there


def _clients(box: Box, directory: str, known: frozenset[int]) -> tuple[int | None, list[str], list[str], bool]:
    """How many keys there are; which of them others may write, which are a stranger's; whether there are secrets.
    None: not to be seen."""
    try:
        every = sorted(os.listdir(box.path(directory)))
        paths = [os.path.join(directory, name) for name in every if name.endswith(SUFFIX)]
        seen = [(path, os.stat(box.path(path))) for path in paths]
    except FileNotFoundError:
        return 0, [], [], False
    except OSError:
        return None, [], [], False
    bad = [path for path, status in seen if status.st_mode & 0o022]
    strange = [f"{path} (user {status.st_uid})" for path, status in seen if status.st_uid not in known]
    return len(paths), bad, strange, any(name.endswith(SECRET_SUFFIX) for name in every)


def judge(keys: Keys) -> list[Finding]:
    out = list(keys.replaceable)
    if keys.secret is not None and keys.secret & 0o077:
        what = f"{keys.path} is {keys.secret:04o}"
        do = f"sudo chmod 0600 {keys.path}; make a new one if others may have read it: edgectl keys server"
        out.append(finding.error(NAME, what, "whoever has the secret key can play this box", do))
    if keys.bad:
        why = "whoever may write a key file lets in whom they like"
        out.append(finding.error(NAME, f"others may write {', '.join(keys.bad)}", why, "sudo chmod go-w FILE"))
    if keys.strange:
        why = "whoever owns a key file lets in whom they like"
        what = f"of somebody else: {', '.join(keys.strange)}"
        out.append(finding.error(NAME, what, why, "sudo chown root:edged FILE; sudo chmod 0644 FILE"))
    if keys.old:
        what = "the key of the box was changed after the service was started"
        why = "the one before is in force: clients that know the new one only are not let in"
        out.append(finding.warning(NAME, what, why, "sudo systemctl restart edged"))
    if keys.secrets:
        why = "they belong on the clients' devices and nowhere else"
        out.append(finding.warning(NAME, "secret keys lie among those of the clients", why, "remove the *.key_secret"))
    if keys.tcp and not keys.there:
        what = f"{', '.join(dict.fromkeys(keys.tcp))} without keys"
        if keys.insecure:
            why = "everybody who reaches the port may use the model and read along (security.allow_insecure_tcp)"
            out.append(finding.warning(NAME, what, why, "edgectl keys server, then edgectl keys client NAME"))
        else:
            do = "edgectl keys server"
            out.append(finding.error(NAME, what, "the daemon refuses to start like this", do))
    if keys.tcp and keys.there and keys.clients == 0:
        do = "edgectl keys client NAME, for each device"
        out.append(finding.warning(NAME, "no client has a key: nobody gets in over TCP", do=do))
    if out:
        return out
    if not keys.tcp:
        return [finding.ok(NAME, "none needed: nothing listens on TCP")]
    if keys.secret is None or keys.clients is None:
        return [finding.unknown(NAME, "the keys may not be looked at", do="sudo edgectl doctor")]
    return [finding.ok(NAME, f"one of this box, {keys.clients} of clients")]


def where(box: Box) -> tuple[list[str], str, str]:
    """TCP endpoints; where the secret key and the clients' keys lie, or would: of a service in the system's places."""
    security = box.config.security
    system = not box.here or (box.installed and box.runtime_dir == SYSTEM_RUNTIME)
    path = security.server_key or (SERVER_KEY if system else places.server_key())
    directory = security.clients_dir or (CLIENTS if system else places.clients_dir())
    every = [*box.config.request_endpoints, *box.config.stream_endpoints]
    return [end for end in every if end.startswith("tcp://")], path, directory
