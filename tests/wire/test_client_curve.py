"""The client library with keys: served, refused with the reason, made whole when others' keys are revoked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Daemon, running, until
from keys import Keys, apply, pair

from edged import keyfile
from edged.client import AsyncClient, BadKey, Client, NotAdmitted, Pace
from edged.client.errors import CUT, CUT_WITHOUT_KEYS, KEY_UNKNOWN, KEYS_WANTED, NO_KEYS

PACE = Pace(first_try_s=0.5, silence_s=1.0, backoff_s=0.05)
LIMITS = {"drain_s": 0.2, "orphan_grace_ms": 3000}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")


@pytest.fixture
def box(tmp_path: Path, keys: Keys) -> Iterator[Daemon]:
    keys.ada, keys.bob = keys.admit("ada", name="ada"), keys.admit("bob", name="bob")
    with running(tmp_path / "box", limits=LIMITS, **keys.settings(tmp_path / "box/run")) as daemon:
        yield daemon


def library(keys: Keys, key: keyfile.KeyFile, **more: Any) -> Client:
    given: dict[str, Any] = {
        "key": key.secret,
        "server_key": keys.server.public,
        "pace": PACE,
        "streams": streams(keys),
    } | more
    return Client(keys.request, **given)


def streams(keys: Keys) -> dict[str, str]:
    return {keys.request: keys.stream}


def secret_file(path: Path, key: keyfile.KeyFile) -> Path:
    path.touch(0o600)
    path.write_text(keyfile.secret_text(key))
    return path


@pytest.mark.parametrize("mode", ["reply", "pub"])
def test_served_over_tcp(box: Daemon, keys: Keys, mode: str, tmp_path: Path) -> None:
    device = secret_file(tmp_path / "ada.key_secret", keys.ada)
    (tmp_path / "box.key").write_text(keyfile.public_text(keys.server))
    edged = Client(keys.request, streams=streams(keys), key=device, server_key=str(tmp_path / "box.key"))
    with edged.stream("n=10", mode=mode) as stream:
        assert "".join(stream) == stream.result.text
    assert edged.result(stream.id).text == stream.text

    async def asynchronous() -> str:
        async with AsyncClient(
            keys.request, streams=streams(keys), key=keys.ada.secret, server_key=keys.server.public
        ) as other:
            assert (await other.result(stream.id)).text == stream.text
            async with other.stream("n=4", mode=mode) as short:
                return (await short.finish()).text

    assert asyncio.run(asynchronous()) == "t0 t1 t2 t3 "


def test_the_environment_says_which_keys(
    box: Daemon, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGED_KEY", str(secret_file(tmp_path / "ada.key_secret", keys.ada)))
    monkeypatch.setenv("EDGED_SERVER_KEY", f"{pair().public},{keys.server.public}")
    assert Client(keys.request, pace=PACE).ping().version
    assert Client(box.request_endpoint).ping().version, "on ipc they do not matter"


def test_a_refusal_says_why(box: Daemon, keys: Keys) -> None:
    for edged, reasons in (
        (library(keys, pair()), {KEY_UNKNOWN}),
        (library(keys, keys.ada, server_key=pair().public), {CUT}),
        (Client(keys.request, pace=PACE), {KEYS_WANTED, CUT_WITHOUT_KEYS}),
    ):
        with pytest.raises(NotAdmitted) as caught:
            edged.ping(deadline_s=1.0)
        assert caught.value.reason in reasons
        assert keys.request in str(caught.value)
    with pytest.raises(NotAdmitted, match="does not know this key"):
        library(keys, pair()).generate("n=1", deadline_s=60)
    async_client = AsyncClient(keys.request, key=pair().secret, server_key=keys.server.public, pace=PACE)
    with pytest.raises(NotAdmitted, match="does not know this key"):
        asyncio.run(async_client.generate("n=1", deadline_s=60))


def test_a_box_without_keys_is_told_apart(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    listen = keys.settings(tmp_path / "box/run")["listen"]
    with running(tmp_path / "box", listen=listen, security={"allow_insecure_tcp": True}):
        assert Client(keys.request).ping().version
        with pytest.raises(NotAdmitted) as caught:
            library(keys, pair()).ping(deadline_s=1.5)
        assert caught.value.reason in (NO_KEYS, CUT)


def test_every_server_key_has_its_turn_and_the_good_one_stays(box: Daemon, keys: Keys) -> None:
    edged = library(keys, keys.ada, server_key=[pair().public, pair().public, keys.server.public])
    assert edged.ping().version
    good = edged._keys.of(keys.request)
    assert good.server == keys.server.public
    with edged.stream("n=3", mode="pub") as stream:
        assert stream.result.text == "t0 t1 t2 "
    assert edged._keys.of(keys.stream) == good


def test_of_two_boxes_the_one_that_knows_the_key_answers(box: Daemon, keys: Keys, tmp_path: Path) -> None:
    other = Keys(tmp_path / "other keys")
    with running(tmp_path / "other", limits=LIMITS, **other.settings(tmp_path / "other/run")):
        edged = Client(
            [other.request, keys.request],
            key=keys.ada.secret,
            server_key={other.request: other.server.public, keys.request: [keys.server.public]},
            pace=PACE,
        )
        assert edged.generate("n=2", deadline_s=30).text == "t0 t1 "
        other.admit("ada", keys.ada)
        with pytest.raises(BadKey, match=f"`server_key` is missing for {other.request}"):
            Client([other.request], key=keys.ada.secret, server_key={keys.request: keys.server.public})


def test_who_keeps_its_key_gets_the_whole_text_when_another_is_revoked(box: Daemon, keys: Keys) -> None:
    prompt, whole = "n=150 delay=0.01", "".join(f"t{n} " for n in range(150))
    ada, bob = library(keys, keys.ada), library(keys, keys.bob)
    ended: dict[object, tuple[str, str, int]] = {}

    def ask(mode: Any) -> None:
        if mode is None:
            text = bob.generate(prompt, deadline_s=60).text
            ended[mode] = text, text, 1
            return
        with bob.stream(prompt, mode=mode, deadline_s=60) as stream:
            ended[mode] = "".join(stream), stream.result.text, stream.run

    modes = (None, "reply", "pub")
    threads = [threading.Thread(target=ask, args=(mode,)) for mode in modes]
    for thread in threads:
        thread.start()
    try:
        with ada.stream("n=4000 delay=0.01", max_tokens=4000, deadline_s=600) as stream:
            next(stream)
            box.wait_status(lambda s: s["slots"]["busy"] == 4, "all of them")
            keys.remove("ada")
            apply(box)
            with pytest.raises(NotAdmitted, match="does not know this key"):
                for _ in stream:
                    pass
    finally:
        for thread in threads:
            thread.join(60)
    assert ended == dict.fromkeys(modes, (whole, whole, 1))


def test_a_box_that_changes_its_key_under_a_stream(box: Daemon, keys: Keys) -> None:
    new = pair()
    edged = library(keys, keys.ada, server_key=[keys.server.public, new.public])
    with edged.stream("n=60 delay=0.02", deadline_s=60) as stream:
        next(stream)
        keys.write_server(new)
        box.process.kill()
        box.process.wait()
        box.start(ready=False)
        assert stream.result.text == "".join(f"t{n} " for n in range(60))
    with pytest.raises(NotAdmitted):
        library(keys, keys.ada, server_key=edged._keys._servers[keys.request][0]).ping(deadline_s=1.5)


@pytest.mark.parametrize(
    ("key", "server", "what"),
    [
        (None, "right", "`key` is missing"),
        ("right", None, "`server_key` is missing"),
        ("nowhere.key_secret", "right", "nowhere.key_secret: No such file or directory: neither a key file nor a key"),
        ("x" * 40 + "~", "right", "neither a key file nor a key"),
        ("right", "short", "short: No such file"),
        ("public", "right", "expected secret-key in section curve, found none: a public file"),
        ("right", "secret", "found a secret key"),
        ("open", "right", "0644: others can read this secret"),
        ("mixed", "right", "do not belong together"),
    ],
)
def test_keys_that_are_none(tmp_path: Path, key: str | None, server: str | None, what: str) -> None:
    own, other = pair(), pair()
    good = secret_file(tmp_path / "right", own)
    secret_file(tmp_path / "mixed", keyfile.KeyFile(public=other.public, secret=own.secret))
    (tmp_path / "public").write_text(keyfile.public_text(own))
    secret_file(tmp_path / "open", own).chmod(0o644)

    def place(name: str | None) -> str | None:
        return str(tmp_path / name) if name in ("right", "mixed", "public", "open", "secret") else name

    (tmp_path / "secret").write_text(good.read_text())
    servers = other.public if server == "right" else place(server)
    with pytest.raises(BadKey) as caught:
        Client("tcp://127.0.0.1:1", key=place(key), server_key=servers)
    assert what in str(caught.value)
    assert own.secret not in str(caught.value)


def test_a_key_with_a_typo_is_not_shown() -> None:
    secret = pair().secret[:-1] + "~"
    with pytest.raises(BadKey) as caught:
        Client("tcp://127.0.0.1:1", key=secret, server_key=pair().public)
    assert secret not in str(caught.value)


def test_a_good_box_is_waited_for(box: Daemon, keys: Keys) -> None:
    """A key that is admitted a moment later: the next call is served by a new socket."""
    new = pair(name="new")
    edged = library(keys, new)
    with pytest.raises(NotAdmitted):
        edged.ping()
    keys.admit("new", new)
    apply(box)
    assert until(edged.ping, "the ping").version
