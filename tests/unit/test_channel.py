import os
import socket
import threading

import pytest

from edged import link
from edged.messages import Abort, Loading, Quit
from edged.worker.channel import BACKLOG, Channel, LinkClosed


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Channel(ours), theirs
    ours.close()
    theirs.close()


def test_frames_go_both_ways(pair) -> None:
    channel, peer = pair
    assert channel.receive() == []
    peer.sendall(link.encode(Abort(1), Quit()))
    channel.wait(also=None)
    assert channel.receive() == [Abort(1), Quit()]
    channel.send(Loading(0.5))
    assert link.UpReader().feed(peer.recv(4096)) == [Loading(0.5)]


def test_a_wait_may_end_by_itself(pair) -> None:
    channel, peer = pair
    other = os.eventfd(0)
    assert channel.wait(other, 1) is False
    assert channel.wait(other, 0) is False
    os.eventfd_write(other, 1)
    assert channel.wait(other, 60_000) is True
    os.close(other)
    peer.sendall(link.encode(Quit()))
    assert channel.wait(None, 60_000) is False
    assert channel.receive() == [Quit()]


def test_the_end_of_the_peer_is_told(pair) -> None:
    channel, peer = pair
    peer.close()
    with pytest.raises(LinkClosed):
        channel.receive()
    with pytest.raises(LinkClosed):
        channel.send(Loading(0.5))


def test_nonsense_is_the_end_too(pair) -> None:
    channel, peer = pair
    peer.sendall(b"\xff" * 64)
    with pytest.raises(LinkClosed):
        channel.receive()


def test_a_reader_that_stops_is_waited_for_and_loses_nothing(pair) -> None:
    channel, peer = pair
    count = 3 * BACKLOG // 20
    got: list[Loading] = []

    def read() -> None:
        reader = link.UpReader()
        while len(got) < count:
            got.extend(reader.feed(peer.recv(65536)))

    thread = threading.Thread(target=read)
    started = False
    for n in range(count):
        if not started and len(channel._out) > BACKLOG // 2:
            thread.start()
            started = True
        channel.send(Loading(float(n)))
    channel.close(timeout_ms=10_000)
    thread.join(30)
    assert [m.fraction for m in got] == [float(n) for n in range(count)]


def test_a_wake_up_is_told_apart(pair) -> None:
    channel, peer = pair
    wake = os.eventfd(1, os.EFD_NONBLOCK)
    assert channel.wait(also=wake)
    os.eventfd_read(wake)
    peer.sendall(link.encode(Quit()))
    assert not channel.wait(also=wake)
    os.close(wake)
