"""The keys on the disk: who is who, all or nothing, and what is refused (protocol 9)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edged import config, keyfile, keypair, keyring
from edged.errors import ConfigError
from edged.keyfile import KeyFile

TCP = {"listen": {"request": ["tcp://127.0.0.1:5555"]}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tinkerer's configuration."""
    monkeypatch.setattr("edged.places.SYSTEM_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    return tmp_path / "edged"


def pair(**metadata) -> KeyFile:
    public, secret = keypair.new()
    return KeyFile(public=public, secret=secret, **metadata)


def box(home: Path) -> KeyFile:
    """A server key, and an empty directory for clients."""
    (home / "clients").mkdir(parents=True)
    (home / "keys").mkdir()
    key = pair()
    put(home / "keys/server.key_secret", keyfile.secret_text(key))
    return key


def put(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def client(home: Path, file: str, **metadata) -> KeyFile:
    key = pair(**metadata)
    put(home / f"clients/{file}.key", keyfile.public_text(key), 0o644)
    return key


def load(**keys):
    return keyring.load(config.parse(TCP | keys, "edged.yaml"))


def error_of(**keys) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_tcp_no_key_is_read(home):
    assert keyring.load(config.parse({}, "edged.yaml")) is None


def test_tcp_without_a_key_says_what_to_do(home):
    error = error_of()
    assert error.startswith("edged.yaml: listen.request: expected a key of this box for tcp:// (`edgectl keys server`")
    assert f"found tcp://127.0.0.1:5555 and no {home}/keys/server.key_secret" in error
    assert load(security={"allow_insecure_tcp": True}) is None


def test_with_a_key_tcp_is_never_insecure(home):
    box(home)
    ring = load(security={"allow_insecure_tcp": True})
    assert ring is not None
    assert any("allow_insecure_tcp has no effect" in warning for warning in ring.warnings)


def test_a_key_that_is_named_must_be_there(home):
    missing = str(home / "other.key_secret")
    security = {"server_key": missing, "allow_insecure_tcp": True}
    assert error_of(security=security).startswith(f"{missing}: security.server_key: expected a key file")


def test_who_is_who(home):
    own = box(home)
    ada = client(home, "ada", name="ada", max_queued=3, max_priority="high")
    new = client(home, "ada~new", name="ada", max_queued=3, max_priority="high")
    bob = client(home, "bob")
    put(home / "clients/.ada.key.tmp", "half")
    put(home / "clients/README", "about")
    ring = load()
    assert (ring.public, ring.secret) == (own.public, own.secret)
    assert own.secret not in repr(ring)
    known = {keyfile.to_z85(raw): known for raw, known in ring.clients.items()}
    assert known[ada.public] == keyring.Known(ada.public, "name:ada", 3, "high")
    assert known[new.public].identity == "name:ada"
    assert known[bob.public] == keyring.Known(bob.public, f"key:{bob.public}", None, None)
    assert len(known) == 3
    assert ring.warnings == ()


def test_nobody_is_let_in_without_keys_and_it_is_told(home):
    box(home)
    ring = load()
    assert ring.clients == {}
    assert "nobody can come in over TCP" in ring.warnings[0]


def test_one_bad_file_and_nothing_is_taken(home):
    box(home)
    client(home, "ada", name="ada")
    put(home / "clients/bad.key", 'curve\n    public-key = "short"\n')
    error = error_of()
    assert error.startswith(
        f"{home}/clients/bad.key:2: security.clients_dir: expected public-key: 40 characters of Z85"
    )


def test_a_key_in_two_files(home):
    box(home)
    ada = client(home, "ada", name="ada")
    put(home / "clients/bob.key", keyfile.public_text(ada))
    assert f"expected a key in one file only, found that of {home}/clients/ada.key" in error_of()


def test_one_name_has_one_set_of_limits(home):
    box(home)
    client(home, "a", name="ada", max_queued=3)
    client(home, "b", name="ada", max_queued=4)
    assert f"{home}/clients/b.key: security.clients_dir: expected the limits of the other files of `ada`" in error_of()


@pytest.mark.parametrize("what", ["fifo", "directory", "dangling", "secret"])
def test_what_is_no_key_file(home, what):
    box(home)
    path = home / "clients/x.key"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "dangling":
        path.symlink_to(home / "nowhere")
    else:
        put(path, keyfile.secret_text(pair()))
    assert error_of().startswith(f"{path}")


def test_no_directory(home):
    box(home)
    (home / "clients").rmdir()
    assert error_of().startswith(f"{home}/clients: security.clients_dir: expected a directory of key files")


def test_too_many_keys(home, monkeypatch):
    monkeypatch.setattr(keyring, "MAX_CLIENTS", 1)
    box(home)
    client(home, "a")
    assert load() is not None
    client(home, "b")
    assert "expected at most 1 keys, found 2" in error_of()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_secret_that_others_can_read_is_refused(home, mode):
    box(home)
    path = home / "keys/server.key_secret"
    path.chmod(mode)
    error = error_of()
    assert "expected mode 0600" in error
    assert "edgectl keys server" in error
    path.chmod(0o400)
    assert load() is not None


def test_a_secret_of_somebody_else_is_refused(home):
    if os.geteuid() != 0:
        pytest.skip("root only: a file is given away")
    box(home)
    os.chown(home / "keys/server.key_secret", 4242, -1)
    assert "found one of uid 4242" in error_of()


def test_halves_that_do_not_belong_together(home):
    box(home)
    one, other = pair(), pair()
    mixed = KeyFile(public=one.public, secret=other.secret)
    put(home / "keys/server.key_secret", keyfile.secret_text(mixed))
    error = error_of()
    assert "expected the public key that belongs to the secret one" in error
    assert other.secret not in error


@pytest.mark.parametrize("mode", [0o400, 0o440])
def test_a_credential_of_systemd_has_its_own_modes(home, tmp_path, monkeypatch, mode):
    box(home)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    key = pair()
    put(credentials / "keys_server.key_secret", keyfile.secret_text(key), mode)
    assert load().public == key.public
    (credentials / "keys_server.key_secret").chmod(0o444)
    assert "0444: others can read it" in error_of()


def test_a_service_knows_by_its_credentials_that_there_is_no_key(home, tmp_path, monkeypatch):
    """`/etc/edged/keys` is closed to it: that it cannot look there says nothing."""
    system, credentials = tmp_path / "etc", tmp_path / "credentials"
    credentials.mkdir()
    monkeypatch.setattr("edged.places.SYSTEM_CONFIG", str(system))
    monkeypatch.setattr("edged.places.absent", lambda path: str(credentials) in path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert "systemctl restart edged" in error_of()
    assert load(security={"allow_insecure_tcp": True}) is None


def test_a_directory_that_everybody_may_write_is_told(home):
    box(home)
    client(home, "ada")
    put(home / "clients/ada.key_secret", keyfile.secret_text(pair()))
    (home / "clients").chmod(0o777)
    warnings = load().warnings
    assert any("everybody may write" in warning for warning in warnings)
    assert any("has secret keys" in warning for warning in warnings)
    (home / "clients").chmod(0o755)
    (home / "clients/ada.key").chmod(0o666)
    warnings = load().warnings
    assert any("everybody may write a key in" in warning for warning in warnings)
    assert not any("ada" in warning for warning in warnings), "who may come in is nobody's business"


def test_the_system_s_places_go_first(home, tmp_path, monkeypatch):
    system = tmp_path / "etc"
    own = box(home)
    monkeypatch.setattr("edged.places.SYSTEM_CONFIG", str(system))
    assert load().public == own.public
    other = box(system)
    assert load().public == other.public


@pytest.mark.parametrize("what", ["loop", "dangling"])
def test_a_key_that_cannot_be_looked_at_never_makes_tcp_insecure(home, what):
    box(home)
    path = home / "keys/server.key_secret"
    path.unlink()
    if what == "loop":
        path.parent.rmdir()
        path.parent.symlink_to("keys")
    else:
        path.symlink_to("nowhere")
    error = error_of(security={"allow_insecure_tcp": True})
    assert error.startswith(f"{path}: security.server_key: expected a key file that can be read")


@pytest.mark.parametrize("whose", ["user", "system"])
def test_a_directory_of_keys_that_is_closed_never_makes_tcp_insecure(home, tmp_path, monkeypatch, whose):
    if os.geteuid() != 0:
        pytest.skip("root only: somebody else looks")
    place = home if whose == "user" else tmp_path / "etc"
    box(place)
    (place / "keys").chmod(0o700)
    monkeypatch.setattr("edged.places.SYSTEM_CONFIG", str(tmp_path / "etc"))
    os.seteuid(65534)
    try:
        error = error_of(security={"allow_insecure_tcp": True})
    finally:
        os.seteuid(0)
    assert "security.server_key: expected a key file that can be read" in error
    assert error.endswith("found Permission denied")


def test_a_directory_above_that_everybody_may_write_is_told(home):
    box(home)
    client(home, "ada")
    home.chmod(0o777)
    assert any(f"everybody may put another directory in place of {home}/clients" in told for told in load().warnings)
    home.chmod(0o1777)
    assert load().warnings == (), "nobody may rename what is another's there"
    home.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(home, 4242, -1)
        assert any("uid 4242" in told for told in load().warnings)
