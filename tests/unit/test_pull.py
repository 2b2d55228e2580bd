"""Pulling a model from a real server that misbehaves: what lies under the final name is whole, or the old one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from edged.models import checked, files, http, partial
from edged.models.pull import Options, PullError, pull
from edged.models.sources import Remote, parse
from unit.model_server import Server, gguf_file, sha256

MODEL = gguf_file(1_048_576)
HALF = len(MODEL) // 2
SUM = sha256(MODEL)
OLD = b"the old model"


class Teller:
    """Remembers what is said, and how far each connection came."""

    def __init__(self):
        self.said, self.begun, self.seen = [], [], []

    def say(self, text):
        self.said.append(text)

    def begin(self, done, total):
        self.begun.append((done, total))

    def progress(self, done):
        self.seen.append(done)

    def end(self):
        pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def teller():
    return Teller()


def remote(server, path="/m.gguf", **known):
    known.setdefault("known_by", "--sha256" if known.get("sha256") else "")
    return Remote(f"{server.url}{path}", "m.gguf", **known)


def fetch(source, directory, teller, **options):
    options.setdefault("timeout", 5)
    return pull(source, directory, Options(**options), teller, wait=lambda _: None)


def names(directory):
    return sorted(p.name for p in directory.iterdir() if p.name != ".checked.json")


def test_a_whole_file(server, tmp_path, teller):
    server.add("/m.gguf", MODEL)
    done = fetch(remote(server, sha256=SUM), tmp_path / "new" / "models", teller)
    path = tmp_path / "new" / "models" / "m.gguf"
    assert path.read_bytes() == MODEL
    assert (done.path, done.size, done.sha256, done.against) == (str(path), len(MODEL), SUM, "--sha256")
    assert (done.fetched, done.resumed_from) == (True, 0)
    assert names(path.parent) == ["m.gguf"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert checked.lookup(path).against == "--sha256"
    assert teller.seen[-1] == len(MODEL)


def test_it_is_there_already(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL)
    fetch(remote(server), tmp_path, teller)
    (tmp_path / ".checked.json").unlink()
    inode = (tmp_path / "m.gguf").stat().st_ino
    assert not fetch(remote(server, sha256=SUM), tmp_path, teller).fetched
    assert len(file.requests) == 1  # a known sum needs no question
    again = fetch(remote(server), tmp_path, teller)
    assert (again.fetched, again.against) == (False, "")
    assert (tmp_path / "m.gguf").stat().st_ino == inode


def test_cut_at_half_goes_on_by_itself(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, cut=HALF)
    done = fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, HALF]
    assert file.requests[1]["if-range"] == '"one"'
    assert (tmp_path / "m.gguf").read_bytes() == MODEL
    assert done.sha256 == SUM
    assert teller.begun == [(0, len(MODEL)), (HALF, len(MODEL))]
    assert any("the connection ended early; trying again in 1 s" in text for text in teller.said)


def test_cut_every_time_keeps_the_part_and_the_old_model(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, cut=HALF, cuts=99)
    (tmp_path / "m.gguf").write_bytes(OLD)
    with pytest.raises(PullError, match=r"connection ended early \(0.5 MB of 1.0 MB are kept in m.gguf.part") as error:
        fetch(remote(server, sha256=SUM), tmp_path, teller, retries=2)
    assert error.value.network
    assert (tmp_path / "m.gguf").read_bytes() == OLD
    assert (tmp_path / "m.gguf.part").read_bytes() == MODEL[:HALF]
    record = partial.load(tmp_path / "m.gguf")
    assert (record.flushed, record.size, record.validator, record.sha256) == (HALF, len(MODEL), '"one"', SUM)


def test_tries_are_counted_only_when_they_bring_nothing(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, piece=len(MODEL) // 8)
    fetch(remote(server), tmp_path, teller, retries=1)
    assert len(file.requests) == 8
    assert (tmp_path / "m.gguf").read_bytes() == MODEL


def test_what_arrived_before_a_failure_is_flushed(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, cut=HALF)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    assert partial.load(tmp_path / "m.gguf").flushed == HALF


def test_the_pause_doubles_and_ends(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, cut=0, cuts=99)
    waited = []
    with pytest.raises(PullError):
        pull(remote(server), tmp_path, Options(timeout=5, retries=6), teller, waited.append)
    assert waited == [1, 2, 4, 8, 16, 30]


def test_wrong_sha256(server, tmp_path, teller):
    server.add("/m.gguf", gguf_file(len(MODEL), seed=1))
    (tmp_path / "m.gguf").write_bytes(OLD)
    with pytest.raises(PullError, match=f"m.gguf: sha256 [0-9a-f]{{64}}, --sha256 says {SUM}: damaged on the way"):
        fetch(remote(server, sha256=SUM), tmp_path, teller)
    assert names(tmp_path) == ["m.gguf"]
    assert (tmp_path / "m.gguf").read_bytes() == OLD


def test_the_file_changed_between_tries(server, tmp_path, teller):
    file = server.add("/m.gguf", gguf_file(len(MODEL), seed=1), cut=HALF)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    file.data, file.etag = MODEL, '"two"'
    done = fetch(remote(server), tmp_path, teller)
    assert (tmp_path / "m.gguf").read_bytes() == MODEL
    assert done.resumed_from == 0
    assert "from the beginning" in teller.said[-1]


def test_a_server_that_ignores_if_range(server, tmp_path, teller):
    file = server.add("/m.gguf", gguf_file(len(MODEL), seed=1), cut=HALF, ignores_if_range=True)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    file.data, file.etag = MODEL, '"two"'
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, HALF, 0]
    assert (tmp_path / "m.gguf").read_bytes() == MODEL


def test_a_file_that_became_shorter_than_the_part(server, tmp_path, teller):
    file = server.add("/m.gguf", gguf_file(len(MODEL), seed=1), cut=HALF, ignores_if_range=True)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    file.data = gguf_file(4096)
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, HALF, 0]
    assert (tmp_path / "m.gguf").read_bytes() == file.data


def test_a_file_that_grew_under_the_same_etag(server, tmp_path, teller):
    file = server.add("/m.gguf", gguf_file(len(MODEL), seed=1), cut=HALF)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    file.data = gguf_file(2 * len(MODEL))
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, HALF, 0]
    assert (tmp_path / "m.gguf").read_bytes() == file.data


def test_without_ranges_it_begins_anew(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, cut=HALF, ranges=False)
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, HALF]
    assert teller.begun == [(0, len(MODEL)), (0, len(MODEL))]
    assert (tmp_path / "m.gguf").read_bytes() == MODEL


def test_without_any_mark_a_part_is_only_kept_for_a_known_sum(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, cut=HALF, etag=None)
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, 0]
    (tmp_path / "m.gguf").unlink()
    file.requests.clear()
    fetch(remote(server, sha256=SUM), tmp_path, teller)
    assert file.starts == [0, HALF]


def test_after_a_power_cut_only_what_was_flushed_counts(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, cut=HALF)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    target = tmp_path / "m.gguf"
    partial.save(target, msgspec.structs.replace(partial.load(target), flushed=5000, boot="another life"))
    part = partial.part_path(target)
    part.write_bytes(MODEL[:5000] + bytes(HALF - 5000))  # what ext4 leaves of pages that were never written
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0, 5000]
    assert target.read_bytes() == MODEL


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"place":1}', b"\xff"])
def test_a_broken_record_means_from_the_beginning(server, tmp_path, teller, garbage):
    file = server.add("/m.gguf", MODEL)
    partial.part_path(tmp_path / "m.gguf").write_bytes(MODEL[:HALF])
    partial.record_path(tmp_path / "m.gguf").write_bytes(garbage)
    fetch(remote(server), tmp_path, teller)
    assert file.starts == [0]
    assert (tmp_path / "m.gguf").read_bytes() == MODEL


def test_a_part_that_is_whole_needs_no_server(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, cut=HALF)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=0)
    partial.part_path(tmp_path / "m.gguf").write_bytes(MODEL)
    server.files.clear()
    assert fetch(remote(server), tmp_path, teller).sha256 == SUM
    assert names(tmp_path) == ["m.gguf"]


def test_404(server, tmp_path, teller):
    with pytest.raises(PullError, match=r"m.gguf: HTTP 404 Not Found \(is the name right") as error:
        fetch(remote(server), tmp_path, teller)
    assert not error.value.network
    assert names(tmp_path) == []


@pytest.mark.parametrize(("status", "tries", "words"), [(503, 3, "HTTP 503"), (403, 1, r"give a token in \$HF_TOKEN")])
def test_other_answers(server, tmp_path, teller, status, tries, words):  # noqa: PLR0917
    file = server.add("/m.gguf", MODEL, status=status)
    with pytest.raises(PullError, match=words):
        fetch(remote(server), tmp_path, teller)
    assert len(file.requests) == tries


def test_a_server_that_falls_silent(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, hold=HALF)
    with pytest.raises(PullError, match="no answer in time"):
        fetch(remote(server), tmp_path, teller, timeout=0.2, retries=0)
    file.go_on.set()
    file.hold = None
    assert fetch(remote(server), tmp_path, teller).resumed_from == HALF


def test_redirects(server, tmp_path, teller):
    real = server.add("/store/abc", MODEL, cut=HALF)
    server.add("/m.gguf", b"", redirect="/store/abc")
    fetch(remote(server), tmp_path, teller)
    assert real.starts == [0, HALF]
    server.add("/round", b"", redirect="/round")
    with pytest.raises(PullError, match="redirect"):
        fetch(remote(server, "/round"), tmp_path, teller, retries=0)


@pytest.mark.parametrize("target", ["http://192.0.2.1/m.gguf", "ftp://127.0.0.1/m.gguf", "file:///etc/passwd"])
def test_a_redirect_to_where_it_must_not_go(server, tmp_path, teller, target):
    server.add("/m.gguf", b"", redirect=target)
    with pytest.raises(PullError, match=r"sent on to |is not allowed"):
        fetch(remote(server), tmp_path, teller)
    assert names(tmp_path) == []


def hub(server, sum_, **how):
    """As the hub does it: a redirect that knows size and sum, to a store whose ETag is another each time."""
    size = str(len(how.get("data", MODEL)))
    headers = {"X-Linked-ETag": f'"{sum_}"', "X-Linked-Size": size, "X-Repo-Commit": "abc"}
    front = server.add("/o/r/resolve/main/m.gguf", b"", redirect="/store", headers=headers)
    return front, server.add("/store", how.pop("data", MODEL), **how)


def test_the_hub_names_the_sum(server, tmp_path, teller):
    front, store = hub(server, SUM, cut=HALF)
    source = parse("hf:o/r/m.gguf", hub=server.url)
    with pytest.raises(PullError):
        fetch(source, tmp_path, teller, retries=0, token="secret")
    store.etag = '"another"'
    done = fetch(source, tmp_path, teller, token="secret")
    assert (done.against, done.resumed_from) == ("the hub", HALF)
    assert front.requests[0]["authorization"] == "Bearer secret"


def test_a_token_does_not_leave_the_hub(server, tmp_path, teller):
    other = Server()
    try:
        front, _ = hub(server, SUM)
        store = other.add("/store", MODEL)
        front.redirect = f"{other.url}/store"
        fetch(parse("hf:o/r/m.gguf", hub=server.url), tmp_path, teller, token="secret")
        assert "authorization" in front.requests[0]
        assert "authorization" not in store.requests[0]
    finally:
        other.stop()


def test_the_hub_has_another_file_than_asked_for(server, tmp_path, teller):
    _, store = hub(server, "0" * 64)
    with pytest.raises(PullError, match=f"the hub has sha256 {'0' * 64}, --sha256 says {SUM}"):
        fetch(parse("hf:o/r/m.gguf", hub=server.url, sha256=SUM), tmp_path, teller)
    assert teller.begun == []
    assert len(store.requests) == 1


def test_content_that_is_not_what_the_hub_says(server, tmp_path, teller):
    hub(server, SUM, data=gguf_file(len(MODEL), seed=1))
    with pytest.raises(PullError, match="the hub says"):
        fetch(parse("hf:o/r/m.gguf", hub=server.url), tmp_path, teller)
    assert names(tmp_path) == []


def test_content_length_too_small(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, length=HALF)
    with pytest.raises(PullError, match=f"truncated: expected {len(MODEL)} bytes, found {HALF}"):
        fetch(remote(server), tmp_path, teller)
    assert names(tmp_path) == []


def test_content_length_too_large(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, length=len(MODEL) + 5)
    with pytest.raises(PullError):
        fetch(remote(server), tmp_path, teller, retries=1)
    assert not (tmp_path / "m.gguf").exists()


def test_another_size_than_the_catalog_says(server, tmp_path, teller):
    server.add("/m.gguf", MODEL)
    with pytest.raises(PullError, match=f"{len(MODEL)} bytes, the catalog says 7: another file"):
        fetch(remote(server, size=7, known_by="the catalog"), tmp_path, teller)
    assert teller.begun == []


def test_no_size(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, no_length=True)
    with pytest.raises(PullError, match="does not say how large"):
        fetch(remote(server), tmp_path, teller)


def test_a_captive_portal(server, tmp_path, teller):
    server.add("/m.gguf", b"<html>please log in</html>" * 1000, headers={"Content-Type": "text/html"})
    with pytest.raises(PullError, match=r"not a GGUF file \(but text/html\)"):
        fetch(remote(server), tmp_path, teller)
    assert names(tmp_path) == []


def test_packed(server, tmp_path, teller):
    server.add("/m.gguf", MODEL, headers={"Content-Encoding": "gzip"})
    with pytest.raises(PullError, match="the server packs the file"):
        fetch(remote(server), tmp_path, teller)


def test_no_network(tmp_path, teller, monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(PullError, match=r"no network here\?; or fetch .* `edgectl model import FILE`") as error:
        fetch(parse("qwen2.5-0.5b"), tmp_path, teller)
    assert error.value.network
    assert len(teller.said) == 2  # fewer tries than usual


def test_a_refused_port(tmp_path, teller):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/m.gguf"
        with pytest.raises(PullError, match="connection refused"):
            fetch(Remote(url, "m.gguf"), tmp_path, teller)


def test_too_large_for_the_disk(server, tmp_path, teller, monkeypatch):
    server.add("/m.gguf", MODEL)
    monkeypatch.setattr(files, "free_bytes", lambda _: 50_000_000)
    with pytest.raises(PullError, match=r"50 MB free, 1.0 MB to be written and 67 MB to be left over: make room"):
        fetch(remote(server), tmp_path, teller)
    assert teller.begun == []
    assert names(tmp_path) == []
    assert fetch(remote(server), tmp_path, teller, force=True).fetched
    assert any("warning:" in text for text in teller.said)


def board(root, total, available):
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\n")
    return str(root)


def test_too_large_for_the_board(server, tmp_path, teller):
    server.add("/m.gguf", MODEL)
    source = remote(server, memory=600_000_000)
    small = board(tmp_path / "small", 512 << 20, 300 << 20)
    with pytest.raises(PullError, match=r"about 600 MB of memory .*, this board has 537 MB in all: it would not run"):
        fetch(source, tmp_path / "m", teller, root=small)
    assert teller.begun == []
    busy = board(tmp_path / "busy", 1 << 30, 300 << 20)
    assert fetch(source, tmp_path / "m", teller, root=busy).fetched
    assert "warning: the model needs about 600 MB of memory (estimated), 315 MB are available now" in teller.said[0]


def test_a_directory_that_cannot_be_made(server, tmp_path, teller):
    (tmp_path / "file").write_text("")
    with pytest.raises(files.UnwritableError, match="Not a directory: it is to hold the models"):
        fetch(remote(server), tmp_path / "file" / "models", teller)


@contextlib.contextmanager
def small_disk(directory, size):
    directory.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=False, capture_output=True
    )
    if mount.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mount.stderr.decode().strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def test_a_disk_that_fills_up(server, tmp_path, teller):
    server.add("/m.gguf", MODEL)
    with small_disk(tmp_path / "disk", HALF) as disk:
        (disk / "m.gguf").write_bytes(OLD)
        with pytest.raises(
            PullError, match=r"the disk is full, 0.\d MB are still to come: make room \(0.\d MB of 1.0 MB are"
        ):
            fetch(remote(server, sha256=SUM), disk, teller, force=True)
        assert (disk / "m.gguf").read_bytes() == OLD
        kept = (disk / "m.gguf.part").stat().st_size
        assert 0 < kept < HALF
        subprocess.run(["mount", "-o", f"remount,size={3 * len(MODEL)}", disk], check=True)
        assert fetch(remote(server, sha256=SUM), disk, teller, force=True).resumed_from == kept
        assert (disk / "m.gguf").read_bytes() == MODEL


def test_two_pulls_of_one_file(server, tmp_path, teller):
    file = server.add("/m.gguf", MODEL, hold=HALF)
    first = threading.Thread(target=fetch, args=(remote(server), tmp_path, Teller()))
    first.start()
    assert file.held.wait(30)
    with pytest.raises(files.BusyError, match=f"m.gguf: process {os.getpid()} is fetching it"):
        fetch(remote(server), tmp_path, teller)
    file.go_on.set()
    first.join()
    assert (tmp_path / "m.gguf").read_bytes() == MODEL
    assert names(tmp_path) == ["m.gguf"]


def test_whoever_has_the_old_file_open_keeps_it(server, tmp_path, teller):
    server.add("/m.gguf", MODEL)
    (tmp_path / "m.gguf").write_bytes(OLD)
    with (tmp_path / "m.gguf").open("rb") as serving:
        fetch(remote(server, sha256=SUM), tmp_path, teller)
        assert serving.read() == OLD
    assert "is fetched anew" in teller.said[0]


# ---- the command line ------------------------------------------------------------------------------------------


def edgectl(tmp_path, *args):
    command = [sys.executable, "-m", "edged.cli.main", "model", *args]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "no_proxy": "*", "EDGED_CONFIG": ""}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, cwd=tmp_path, text=True, **pipes)


def lying(path, length):
    """Nothing announces that a file has grown: look until it has."""
    end = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size >= length):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_at_half_and_resumed(server, tmp_path, number):
    file = server.add("/m.gguf", MODEL, hold=HALF)
    models = tmp_path / "data/edged/models"
    models.mkdir(parents=True)
    (models / "m.gguf").write_bytes(OLD)
    with edgectl(tmp_path, "pull", f"{server.url}/m.gguf", "--sha256", SUM) as first:
        lying(models / "m.gguf.part", HALF)
        first.send_signal(number)
        _, told = first.communicate(timeout=60)
    assert first.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "edgectl: interrupted (0.5 MB of 1.0 MB are kept in m.gguf.part: the same command goes on" in told
    assert (models / "m.gguf").read_bytes() == OLD
    assert (models / "m.gguf.part").read_bytes() == MODEL[:HALF]
    file.go_on.set()
    with edgectl(tmp_path, "pull", f"{server.url}/m.gguf", "--sha256", SUM, "--json") as second:
        shown, told = second.communicate(timeout=60)
    done = json.loads(shown)
    assert (second.returncode, done["ok"], done["resumed_from"]) == (0, True, HALF), told
    assert file.starts == [0, HALF]
    assert (models / "m.gguf").read_bytes() == MODEL
    assert names(models) == ["m.gguf"]


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("nix", 2, "'nix' is no model of the catalog (smollm2-135m, qwen2.5-0.5b"),
        ("http://192.0.2.1/m.gguf", 2, "http without TLS"),
        ("{url}/none.gguf", 1, "HTTP 404"),
        ("{url}/m.gguf", 1, "sha256 "),
        ("http://127.0.0.1:9/m.gguf", 3, "connection refused"),
    ],
)
def test_how_the_command_ends(server, tmp_path, source, status, words):
    server.add("/m.gguf", gguf_file(len(MODEL), seed=1))
    args = ["pull", source.format(url=server.url), "--sha256", SUM, "--retries", "0"]
    with edgectl(tmp_path, *args) as process:
        shown, told = process.communicate(timeout=60)
    assert (process.returncode, shown) == (status, "")
    assert words in told.splitlines()[-1]
    assert "Traceback" not in told


def test_the_way_out_is_named_without_a_network():
    assert "edgectl model import FILE" in http.OTHER_WAY
