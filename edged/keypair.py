"""Key pairs of Curve25519, in Z85: made and told apart by libzmq."""

from __future__ import annotations

import zmq


def new() -> tuple[str, str]:
    """Public and secret."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def public_of(secret: str) -> str:
    """The public key that belongs to a secret one."""
    return zmq.curve_public(secret.encode()).decode()
