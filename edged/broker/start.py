"""How a request is given to a worker: from its beginning, or carried on from where an earlier one left it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from edged.broker.table import Request
from edged.messages import Carried, Message, Start


def start(request: Request, messages: list[Message] | None, *, head: int = 0, turns: Sequence[int] = ()) -> Start:
    """What the worker gets; `head` and `turns` as in `Start`. A carried one needs neither: its prompt is known."""
    return Start(
        rid=request.rid,
        prompt=request.body.prompt,
        messages=messages,
        max_tokens=request.max_tokens,
        stop=request.body.stop or [],
        sampling=request.sampling,
        shape=request.shape,
        scope=scope_of(request.identity),
        session=request.talk is not None,
        head=head,
        turns=list(turns),
        name=request.name,
        carried=_carried(request),
    )


def _carried(request: Request) -> Carried | None:
    if not request.carried:
        return None
    return Carried(request.prompt_ids, request.public, request.cuts, request.ids.tobytes())


def scope_of(identity: str) -> str:
    """What the worker calls an identity: the same after every restart, and not the identity itself."""
    return hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
