"""What runs inside a box, with edged's own interpreter: each a whole program."""

ASK = """
import sys
from edged.client import Client
with Client("ipc:///run/edged/request.sock") as edged:
    options = {"id": sys.argv[1], "max_tokens": int(sys.argv[3]), "temperature": 0, "deadline_s": 90}
    with edged.stream(sys.argv[2], **options) as stream:
        for piece in stream:
            print("token", file=sys.stderr, flush=True)
    print(stream.result.text)
"""
"""ID PROMPT TOKENS: one call of the library, whatever happens meanwhile. A line on stderr for each piece of text."""

STREAM = """
import json, sys, zmq
sock = zmq.Context.instance().socket(zmq.DEALER)
sock.linger = 0
sock.connect("ipc:///run/edged/request.sock")
body = {"op": "generate", "id": sys.argv[1], "messages": [{"role": "user", "content": sys.argv[2]}],
        "max_tokens": int(sys.argv[3]), "temperature": 0, "stream": "reply", "deadline_ms": 90000}
sock.send_multipart([b"", json.dumps(body).encode()])
while sock.poll(60000):
    body = sock.recv_multipart()[-1].decode()
    print(body, flush=True)
    if json.loads(body).get("type") == "end":
        break
"""
"""ID PROMPT TOKENS: every event of a stream, a line each, on one connection."""
