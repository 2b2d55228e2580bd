"""`edgectl keys`: a box of one's own, without a daemon. What it makes is what the daemon takes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from edged import config, keyfile, keypair, keyring
from edged.cli.main import cli

TCP = {"listen": {"request": ["tcp://127.0.0.1:5555"]}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("edged.places.SYSTEM_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.delenv("EDGED_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "edged"


def keys(*words: str, status: int = 0) -> str:
    """What it says; of an error, the one line."""
    done = CliRunner().invoke(cli, ["keys", *words], prog_name="edgectl")
    assert done.exit_code == status, (done.output, done.exception)
    if status:
        assert done.stdout == ""
        assert status == 2 or done.stderr.count("\n") == 1
    return done.stderr if status else done.stdout


def loaded() -> keyring.Keyring:
    ring = keyring.load(config.parse(TCP, "edged.yaml"))
    assert ring is not None
    return ring


def secret(path: Path) -> keyfile.KeyFile:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = keyfile.parse(path.read_bytes(), str(path), secret=True)
    assert keypair.public_of(key.secret) == key.public
    return key


def callers() -> dict[str, str]:
    return {known.key: known.identity for known in loaded().clients.values()}


def test_a_key_that_is_not_there_is_called_by_its_name(home: Path) -> None:
    for option, name in (([], "server"), (["--next"], "server-next")):
        makes = " ".join(["edgectl keys server", *option])
        said = keys("show-public", *option, status=1)
        assert f"there is no {home}/keys/{name}.key_secret: `{makes}` makes it" in said


def test_a_box_and_its_first_client(home: Path, tmp_path: Path) -> None:
    said = keys("server")
    own = secret(home / "keys/server.key_secret")
    assert own.public in said
    assert "systemctl restart edged" in said
    assert stat.S_IMODE((home / "keys").stat().st_mode) == 0o700
    assert keys("show-public") == f"{own.public}\n"
    said = keys("client", "kitchen", "--out", "carry", "--max-queued", "4", "--max-priority", "high")
    device = secret(tmp_path / "carry/kitchen.key_secret")
    assert stat.S_IMODE((tmp_path / "carry").stat().st_mode) == 0o700
    assert keyfile.parse((tmp_path / "carry/server.key").read_bytes(), "k", secret=False).public == own.public
    assert "in force after a reload" in said
    (known,) = loaded().clients.values()
    assert known == keyring.Known(device.public, "name:kitchen", 4, "high")
    assert loaded().secret == own.secret
    assert loaded().warnings == ()
    assert keys("show-public", "kitchen") == f"{device.public}\n"
    for text in (said, keys("list"), keys("list", "--json")):
        assert device.secret not in text
        assert own.secret not in text


def test_nothing_is_overwritten(home: Path, tmp_path: Path) -> None:
    keys("server")
    before = (home / "keys/server.key_secret").read_bytes()
    assert "--force replaces it" in keys("server", status=1)
    keys("client", "kitchen")
    assert "kitchen has a key already" in keys("client", "kitchen", status=1)
    keys("client", "ada", "--out", "out")
    keys("revoke", "ada")
    assert "is there already; it is left as it is" in keys("client", "ada", "--out", "out", status=1)
    assert not (home / "clients/ada.key").exists()
    assert (home / "keys/server.key_secret").read_bytes() == before
    keys("server", "--force")
    assert (home / "keys/server.key_secret").read_bytes() != before
    assert "is the key of another box" in keys("client", "bob", status=1), "beside the secret of kitchen"
    for place in ("clients", "keys"):
        assert "choose another --out" in keys("client", "bob", "--out", str(home / place), status=1)
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == [
        "kitchen.key",
        "server.key",
        "server.key_secret",
    ]


def test_the_secret_never_leaves_the_device(home: Path, tmp_path: Path) -> None:
    keys("server")
    said = json.loads(keys("pair", "kitchen", "--out", "device", "--json"))
    device = secret(tmp_path / "device/kitchen.key_secret")
    assert said["public"] == device.public
    keys("client", "kitchen", "--from-public", device.public)
    assert callers() == {device.public: "name:kitchen"}
    assert not (tmp_path / "kitchen.key_secret").exists()
    assert "a key in one file only" in keys("client", "other", "--from-public", device.public, status=78)
    assert "40 characters of Z85" in keys("client", "third", "--from-public", "nonsense", status=2)


def test_a_client_changes_its_key(home: Path, tmp_path: Path) -> None:
    keys("server")
    keys("client", "kitchen", "--max-queued", "4")
    assert "has no second key" in keys("revoke", "kitchen", "--old", status=1)
    keys("client", "kitchen", "--rotate")
    old, new = secret(tmp_path / "kitchen.key_secret"), secret(tmp_path / "kitchen~new.key_secret")
    assert callers() == {old.public: "name:kitchen", new.public: "name:kitchen"}
    assert {known.max_queued for known in loaded().clients.values()} == {4}
    assert "--old` ends the old key" in keys("client", "kitchen", "--rotate", "--out", "x", status=1)
    assert "NOT in force yet" in keys("revoke", "kitchen", "--old")
    assert callers() == {new.public: "name:kitchen"}
    keys("client", "kitchen", "--rotate", "--out", "again")
    assert len(callers()) == 2
    assert len(json.loads(keys("revoke", "kitchen", "--json"))["removed"]) == 2
    assert callers() == {}
    assert "has no key to rotate" in keys("client", "nobody", "--rotate", "--out", "y", status=1)
    assert "nobody has no key in" in keys("revoke", "nobody", status=1)


def test_a_box_changes_its_key(home: Path) -> None:
    assert "make it first" in keys("server", "--next", status=1)
    assert "prepares it" in keys("server", "--switch", status=1)
    keys("server")
    old = loaded().public
    assert "not in force yet" in keys("server", "--next")
    assert loaded().public == old
    upcoming = keys("show-public", "--next").strip()
    listed = json.loads(keys("list", "--json"))["server"]
    assert listed == {"public": old, "next": upcoming}
    keys("server", "--switch")
    assert loaded().public == upcoming == keys("show-public").strip()
    assert "it: `edgectl keys server --next` makes it" in keys("show-public", "--next", status=1).replace(
        ": `", "it: `"
    )


def test_the_list(home: Path) -> None:
    keys("server")
    assert "no clients in" in keys("list")
    keys("client", "kitchen", "--max-priority", "low")
    (home / "clients/plain.key").write_text(keyfile.public_text(keyfile.KeyFile(public=keypair.new()[0])))
    said = keys("list").splitlines()
    assert said[1].split() == ["NAME", "KEY", "QUEUED", "PRIORITY", "FILE"]
    assert said[2].split()[0::2] == ["kitchen", "-", str(home / "clients/kitchen.key")]
    assert said[3].split()[0] == "-"
    keys("revoke", "plain")
    (home / "clients/bad.key").write_text("nonsense\n")
    for words in (["list"], ["client", "new"], ["revoke", "kitchen"]):
        assert f"{home}/clients/bad.key:1: " in keys(*words, status=78)


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "ä", "-x", "a" * 65, "x~new"])
def test_names_that_are_none(home: Path, name: str) -> None:
    keys("server")
    assert "a name is 1 to 64 of" in keys("client", "--", name, status=1)
    assert "a name is 1 to 64 of" in keys("pair", "--", name, status=1)


def test_places(home: Path, tmp_path: Path) -> None:
    keys("server", "--dir", "mine")
    assert (tmp_path / "mine/keys/server.key_secret").exists()
    (tmp_path / "config.yaml").write_text(
        f"security: {{clients_dir: {tmp_path}/c, server_key: {tmp_path}/s/box.key_secret}}\n"
    )
    keys("server")
    keys("client", "kitchen", "--out", "carry")
    assert (tmp_path / "c/kitchen.key").exists()
    assert sorted(os.listdir(tmp_path / "s")) == ["box.key", "box.key_secret"]
    settings = config.load(tmp_path / "config.yaml")
    listen = config.Listen(request=["tcp://127.0.0.1:1"])
    assert keyring.load(type(settings)(listen=listen, security=settings.security)) is not None


def test_a_directory_of_somebody_else(home: Path) -> None:
    home.mkdir()
    (home / "keys").write_text("a file\n")
    assert "File exists" in keys("server", status=1) or "Not a directory" in keys("server", status=1)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_umask_lets_nobody_in_and_locks_nobody_out(home: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        keys("server", "--dir", str(home / "etc"))
        keys("client", "kitchen", "--dir", str(home / "etc"), "--from-public", keypair.new()[0])
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [home, *home.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755, 0o700}
    assert modes[home / "etc/clients"] == 0o755
    assert modes[home / "etc/keys"] == 0o700


def test_without_a_daemon_it_is_told_what_was_made_and_that_it_is_not_in_force(home: Path) -> None:
    keys("server")
    args = [
        "--endpoint",
        f"ipc://{home}/request.sock",
        "keys",
        "client",
        "kitchen",
        "--out",
        str(home / "out"),
        "--reload",
    ]
    done = CliRunner().invoke(cli, args, prog_name="edgectl")
    assert done.exit_code == 3
    assert loaded().clients
    assert f"{home}/clients/kitchen.key" in done.stdout
    assert loaded().clients.popitem()[1].key in done.stdout
    assert "NOT in force, as far as is known" in done.stdout
    assert "nothing answers" in done.stderr
    done = CliRunner().invoke(cli, [*args[:2], "keys", "revoke", "kitchen", "--reload"], prog_name="edgectl")
    assert (done.exit_code, loaded().clients) == (3, {})
    assert f"{home}/clients/kitchen.key: removed\nNOT in force, as far as is known" in done.stdout


def test_without_a_daemon_the_object_of_json_tells_the_same(home: Path) -> None:
    keys("server")
    start = ["--endpoint", f"ipc://{home}/request.sock", "keys"]
    for words in (["client", "kitchen", "--out", str(home / "out")], ["revoke", "kitchen"]):
        done = CliRunner().invoke(cli, [*start, *words, "--reload", "--json"], prog_name="edgectl")
        assert done.exit_code == 3
        told = json.loads(done.stdout)
        assert (told["ok"], told["name"], told["reloaded"]) == (True, "kitchen", False)
        assert str(home / "clients/kitchen.key") in str(told.get("files") or told["removed"])
        assert "nothing answers" in done.stderr


def test_a_client_is_not_called_like_the_files_of_the_box(home: Path) -> None:
    keys("server")
    assert "server is the name of the box's own files" in keys("client", "server", status=1)


@pytest.mark.parametrize("which", ["present", "next"])
def test_the_box_is_no_client_of_its_own(home: Path, which: str) -> None:
    keys("server")
    keys("server", "--next")
    own = keys("show-public", *(["--next"] if which == "next" else [])).strip()
    assert "is a key of this box itself" in keys("client", "kitchen", "--from-public", own, status=1)
    assert not loaded().clients
