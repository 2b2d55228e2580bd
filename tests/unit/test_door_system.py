"""What is done to connections beside libzmq's back, on real sockets: looked at, let in one by one, cut, kept out."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from harness import until

from edged.system.barrier import MOST, Barrier, program
from edged.system.descriptors import HANDSHAKES, budget, doubt
from edged.system.links import FDS, Link, Links, cut, keeps_up, unread
from edged.system.turnstile import Turnstile, Way
from edged.wire import sockets
from edged.wire.listeners import Listener, listen


class Inn:
    """A ROUTER behind a listener of ours, and a turnstile with a thread."""

    def __init__(self, path: Path) -> None:
        self.context: zmq.Context[sockets.Socket] = zmq.Context()
        self.listener: Listener = listen(f"ipc://{path}", mode=0o666, gid=None)
        self.links = Links({self.listener.place: "request"})
        self.bind()

    def bind(self) -> None:
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.setsockopt(zmq.USE_FD, self.listener.duplicate())
        self.socket.bind(self.listener.endpoint)

    def guest(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(self.listener.endpoint.removeprefix("ipc://"))
        return sock

    def inside(self) -> int:
        return len(self.links.look(0.0))

    def way(self, spare: int = 0) -> Way:
        return Way(self.listener.fd, self.listener.given, spare)

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.listener.close()


@pytest.fixture
def inn(tmp_path: Path) -> Iterator[Inn]:
    one = Inn(tmp_path / "inn.sock")
    yield one
    one.close()


@contextlib.contextmanager
def manned(turnstile: Turnstile) -> Iterator[None]:
    leave = threading.Event()

    def stand() -> None:
        turnstile.manned(True)
        while not leave.is_set():
            turnstile.wait(0.02)
        turnstile.manned(False)

    thread = threading.Thread(target=stand)
    thread.start()
    until(lambda: turnstile._manned, "the thread")
    try:
        yield
    finally:
        leave.set()
        thread.join()


# ---- the turnstile ---------------------------------------------------------------------------------------------


def test_nobody_is_let_in_without_room_and_who_waited_comes_in_when_there_is(inn: Inn) -> None:
    gc.collect()  # what other tests left would be closed meanwhile, and make room
    with contextlib.ExitStack() as leave:
        guests = [leave.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(30)]
        turnstile = Turnstile(len(os.listdir(FDS)) + 30)
        turnstile.opened([inn.way(spare=10)])
        leave.enter_context(manned(turnstile))
        for guest in guests:
            guest.connect(inn.listener.endpoint.removeprefix("ipc://"))
        until(lambda: turnstile.full > 3, "somebody has to wait")
        inside = inn.inside()
        assert 10 < inside < 30
        time.sleep(0.1)
        assert inn.inside() <= inside + 1
        for guest in guests[:8]:
            guest.close()
        until(lambda: inn.inside() == 22, "the others")
    turnstile.close()


def test_without_anybody_standing_there_libzmq_accepts_as_it_likes(inn: Inn) -> None:
    turnstile = Turnstile(0)
    turnstile.opened([inn.way(spare=10)])
    guests = [inn.guest() for _ in range(5)]
    until(lambda: inn.inside() == 5, "all of them")
    with manned(turnstile):
        guests += [inn.guest() for _ in range(5)]
        until(lambda: turnstile.full > 1, "no room at all")
        assert inn.inside() <= 6, "one was on its way"
    until(lambda: inn.inside() == 10, "the thread is gone")
    turnstile.close()
    for guest in guests:
        guest.close()


def test_a_socket_bound_anew_is_watched_again_and_the_old_one_left_alone(inn: Inn) -> None:
    turnstile = Turnstile(4096)
    turnstile.opened([inn.way()])
    with manned(turnstile):
        for _ in range(20):
            guests = [inn.guest() for _ in range(5)]
            until(lambda: inn.inside() == 5, "all of them")
            turnstile.closing([inn.listener.fd])
            inn.socket.close(linger=0)
            inn.bind()
            turnstile.opened([inn.way()])
            for guest in guests:
                guest.close()
    assert turnstile.blind == []
    turnstile.close()


def hung_up(guest: socket.socket) -> bool:
    """After libzmq's greeting."""
    guest.settimeout(0.3)
    try:
        while guest.recv(1000):
            pass
    except TimeoutError:
        return False
    return True


# ---- links -----------------------------------------------------------------------------------------------------


def test_the_kernel_tells_who_is_there_and_one_of_them_is_cut(inn: Inn) -> None:
    one, two = inn.guest(), inn.guest()
    until(lambda: inn.inside() == 2, "both")
    links = inn.links.look(7.0)
    me = f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}"
    assert [(link.name, link.address, link.since) for link in links] == [("request", me, 0.0)] * 2
    assert cut(links[0])
    until(lambda: inn.inside() == 1, "it is gone")
    assert not cut(links[0]), "its number may be another's by now"
    assert sorted(map(hung_up, (one, two))) == [False, True]
    one.close()
    two.close()


def test_a_descriptor_that_changed_hands_is_not_cut(inn: Inn) -> None:
    guest = inn.guest()
    until(lambda: inn.inside() == 1, "it")
    (link,) = inn.links.look(0.0)
    a, b = socket.socketpair()
    with a, b:
        assert not cut(type(link)(a.fileno(), link.inode, link.name, link.address, link.since))
        b.send(b"whole")
        assert a.recv(10) == b"whole"
        assert unread(a.fileno()) == 0
    guest.close()


def test_who_does_not_read_does_not_keep_up() -> None:
    a, b = socket.socketpair()
    with a, b:
        assert keeps_up(a.fileno())
        a.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                a.send(b"x" * 4096)
        assert not keeps_up(a.fileno())
        assert unread(b.fileno()) > 65_536
    assert keeps_up(10_000), "nothing is held back for who is gone: libzmq says so"


def test_a_descriptor_that_is_no_socket_any_more_is_left_as_it_was() -> None:
    """A connection's number is used again, and what asks about it must not keep a duplicate each time."""
    with open("/proc/self/status", "rb") as file:
        before = len(os.listdir(FDS))
        for _ in range(50):
            assert keeps_up(file.fileno())
            assert not cut(Link(file.fileno(), 1, "request", "localhost:0:0:1", 0.0))
        assert len(os.listdir(FDS)) == before


# ---- descriptors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [16, 64, 100, 256, 1024, 65_536])
def test_a_budget_never_promises_what_is_not_there(limit: int) -> None:
    found = budget(limit, 20, 256)
    assert 1 <= found.connections <= 256
    assert 2 <= found.handshakes <= HANDSHAKES
    if limit > 64:
        assert found.connections + found.handshakes + found.own + found.operators + 20 <= limit
    assert (doubt(found, 256) is None) == (found.connections == 256)


def test_the_usual_limit_is_enough() -> None:
    assert budget(1024, 30, 256).connections == 256


# ---- the barrier -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("barred", "other"), [("127.0.0.9", "127.0.0.8"), ("::ffff:127.0.0.9", "127.0.0.8")])
def test_an_address_is_kept_out_for_a_while_and_no_other(barred: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def comes(source: str) -> bool:
            with socket.socket() as sock:
                sock.settimeout(0.3)
                sock.bind((source, 0))
                return sock.connect_ex(("127.0.0.1", port)) == 0

        barrier = Barrier([], [server])
        for number in range(5):
            barrier.bar(f"ip:10.0.0.{number}", 1e9)
        assert barrier.bar(f"ip:{barred}", 100.0)
        barrier.bar("ip:2001:db8::1%eth0", 1e9)
        assert not comes("127.0.0.9")
        assert comes(other)
        barrier.lift(100.0)
        assert comes("127.0.0.9")
        barrier.lift_all()
        assert comes("127.0.0.9")


def test_an_address_of_version_6_is_kept_out() -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        barrier = Barrier([], [server])
        barrier.bar("ip:::1", 1e9)
        with socket.socket(socket.AF_INET6) as sock:
            sock.settimeout(0.3)
            assert sock.connect_ex(server.getsockname()) != 0
        barrier.lift_all()
        with socket.socket(socket.AF_INET6) as sock:
            sock.settimeout(5)
            assert sock.connect_ex(server.getsockname()) == 0


def test_a_program_is_as_long_as_it_says() -> None:
    addresses = [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("2001:db8::1")]
    assert len(program(addresses)) == 8 * (6 + 12 + 1)
    assert len(program([addresses[1]] * MOST)) < 8 * 4096


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_a_user_is_kept_out_for_a_while_and_no_other(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.getuid() and directory != Path("/tmp"):
            directory.chmod(0o755)
        if directory == Path("/tmp"):
            break
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()

        def comes(uid: int) -> bool:
            child = os.fork()
            if not child:
                os.setgroups([])
                os.setgid(0)
                os.setuid(uid)
                with socket.socket(socket.AF_UNIX) as sock:
                    os._exit(sock.connect_ex(path) != 0)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        barrier = Barrier([path], [])
        assert comes(54321)
        if not barrier.bar("uid:54321", 100.0):
            pytest.skip("this file system knows no ACL")
        assert not comes(54321)
        assert comes(54322)
        assert os.stat(path).st_mode & 0o777 == 0o666
        barrier.lift(100.0)
        assert comes(54321)
        barrier.bar("uid:54321", 1e9)
        Barrier([path], [])  # another daemon begins
        assert comes(54321)


def test_what_cannot_be_barred_is_said(tmp_path: Path) -> None:
    assert not Barrier([str(tmp_path / "none")], []).bar("uid:1", 1.0)
    assert not Barrier([], []).bar("ip:10.0.0.1", 1.0)


def test_who_is_barred_is_bounded() -> None:
    barrier = Barrier([], [])
    for number in range(3 * MOST):
        barrier.bar(f"uid:{number}", 1e9)
        barrier.bar(f"ip:10.0.0.{number}", 1e9)
    assert len(barrier._until) == 2 * MOST
    assert "uid:0" not in barrier._until
