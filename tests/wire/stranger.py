"""Another process, perhaps another user: does to the sockets what it is told, one JSON command a line.

{"sub": "hex of the topic"}   a SUB subscribes          {"events": seconds}  prints what the SUB received
{"frame": "hex", "to": name}  a raw XSUB/DEALER sends   {"call": {…}}        prints the reply to a request
{"stream": {…}}               a reply stream is begun, prints the first message
"""

from __future__ import annotations

import json
import os
import sys
import time

import zmq


def main() -> None:
    run, uid = sys.argv[1], int(sys.argv[2])
    if uid >= 0:  # after the imports: the interpreter may lie where only its owner may read
        os.setgroups([])
        os.setgid(0)
        os.setuid(uid)
    context = zmq.Context()
    xsub, dealer = context.socket(zmq.XSUB), context.socket(zmq.DEALER)
    for sock in (xsub, dealer):
        sock.linger = 0
    xsub.rcvhwm = 0
    xsub.connect(f"ipc://{run}/stream.sock")
    dealer.connect(f"ipc://{run}/request.sock")
    for line in sys.stdin:
        command = json.loads(line)
        answer: object = None
        if "sub" in command:
            xsub.send(b"\1" + bytes.fromhex(command["sub"]))
        elif "frame" in command:
            xsub.send(bytes.fromhex(command["frame"]))
        elif "events" in command:
            answer = collect(xsub, command["events"])
        elif "call" in command or "stream" in command:
            body = command.get("call") or command["stream"]
            dealer.send_multipart([b"", json.dumps(body).encode()])
            answer = json.loads(dealer.recv_multipart()[-1]) if dealer.poll(20_000) else {"silent": True}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def collect(sub: zmq.Socket, seconds: float) -> list[list[str]]:
    """Everything that arrives within `seconds` of silence."""
    out: list[list[str]] = []
    end = time.monotonic() + seconds
    while sub.poll(max(0, (end - time.monotonic())) * 1000):
        out.append([frame.decode("utf-8", "replace") for frame in sub.recv_multipart()])
    return out


if __name__ == "__main__":
    main()
