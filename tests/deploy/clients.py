"""What streams against a box meanwhile, with edged's own interpreter."""

STREAMING = """
import os, sys, time
from edged.client import Client
prompt, want, n, lost = sys.argv[1], sys.argv[2], 0, []
with Client("ipc:///run/edged/request.sock") as edged:
    while not os.path.exists("/tmp/stop"):
        n += 1
        try:
            options = {"id": f"busy-{os.getpid()}-{n}", "max_tokens": 60, "temperature": 0, "deadline_s": 120}
            with edged.stream(prompt, **options) as stream:
                for piece in stream:
                    pass
                if stream.result.text != want:
                    lost.append(f"{n}: another text: {stream.result.text!r}")
        except Exception as error:
            lost.append(f"{n}: {type(error).__name__}: {error}")
        time.sleep(0.3)  # three boxes share two cores with what rolls out
print(n, len(lost), *lost, sep="\\n")
"""
"""PROMPT TEXT: streams one request after the other until /tmp/stop is there; says how many, and which were lost."""
