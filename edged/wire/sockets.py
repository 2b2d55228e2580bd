"""The only place that makes zmq sockets and sets their options (protocol 1, design 5).

Every number with its reason:

* MAXMSGSIZE, per frame: request and control 4 × `limits.request_bytes` (over it the peer is cut off), stream 1024 (a
  topic has 37 bytes; the CURVE handshake needs some 300).
* SNDHWM, messages per peer: 1024 on `stream`, where an event is small; 256 on `request`, where a reply may have some
  100 kB and a peer may never read. More is dropped: a stream is `lagged`, a reply can be asked for again.
* HANDSHAKE_IVL 5 s: who connects and says nothing gives the descriptor back.
* RCVHWM 0, none. With one, a peer that fills it, sends a PING and goes away ends the process: libzmq 4.3.5 stops
  reading, notes the error, and on going on asserts that there was none (`!_io_error`, its issue 4841). What a peer
  sends faster than it is read is bounded by `limits.spare_memory_bytes` instead.
* No heartbeats of ours, for the same assertion waits behind their timer. On tcp the kernel does it: an idle peer is
  asked every 2 s and given up after 6, and so is one that takes nothing for 6 s (TCP_USER_TIMEOUT). On ipc it tells at
  once. A peer's own PINGs are answered.
* CURVE for tcp listeners when there is a key, NULL for ipc, where the kernel tells who calls. A listener takes the
  options as they are at its bind, so one socket serves both.
* LINGER at the end `LINGER_MS`: last answers get out, a dead client delays the stop no longer than that.
* no socket of ours is ever blocked on: NOBLOCK everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zmq

from edged.wire.auth import DOMAIN
from edged.wire.connections import HANDSHAKE_S
from edged.wire.listeners import Listener

LINGER_MS: Final = 500
HWM_OUT: Final = 1024
HWM_REPLIES: Final = 256
SILENCE_S: Final = 6
"""Of a tcp peer, until it counts as gone."""
STREAM_FRAME_BYTES: Final = 1024
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"

Socket = zmq.Socket[bytes]


def zap(context: zmq.Context[Socket]) -> Socket:
    """The authenticator's end. Make it before the others."""
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.bind(ZAP_ENDPOINT)
    return socket


def router(
    context: zmq.Context[Socket],
    listeners: Sequence[Listener],
    max_frame_bytes: int,
    secret: str | None,
    domain: bytes = DOMAIN,
) -> Socket:
    """`request` or `control`: a send to a peer that is gone raises EHOSTUNREACH, to one that is full EAGAIN.

    `secret`: the key of the box in Z85, for tcp.
    """
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.SNDHWM, HWM_REPLIES)
    _bind(socket, listeners, max_frame_bytes, secret, domain)
    return socket


def xpub(context: zmq.Context[Socket], listeners: Sequence[Listener], secret: str | None) -> Socket:
    """`stream`: nothing is delivered that was not approved by hand."""
    socket = context.socket(zmq.XPUB)
    socket.setsockopt(zmq.XPUB_MANUAL, 1)
    socket.setsockopt(zmq.SNDHWM, HWM_OUT)
    _bind(socket, listeners, STREAM_FRAME_BYTES, secret, DOMAIN)
    return socket


def _bind(
    socket: Socket, listeners: Sequence[Listener], max_frame_bytes: int, secret: str | None, domain: bytes
) -> None:
    socket.linger = LINGER_MS
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_S * 1000))
    for listener in listeners:
        tcp = listener.endpoint.startswith("tcp://")
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, SILENCE_S // 3)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, SILENCE_S // 3)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 2)
        socket.setsockopt(zmq.TCP_MAXRT, SILENCE_S * 1000)
        socket.setsockopt(zmq.IPV6, 1 if "[" in listener.endpoint else 0)
        if secret is not None:
            socket.setsockopt(zmq.CURVE_SECRETKEY, secret.encode())
            socket.setsockopt(zmq.CURVE_SERVER, int(tcp))  # 0 sets the mechanism back to NULL
        socket.setsockopt(zmq.ZAP_DOMAIN, domain)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.USE_FD, listener.duplicate())
        socket.bind(listener.endpoint)
        socket.setsockopt(zmq.USE_FD, -1)
