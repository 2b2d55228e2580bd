"""Eight callers, one system message of some 400 tokens, 16 tokens each, 4 sequences: is the message read once?

The callers have identities of their own (TCP from 127.0.0.2 to 127.0.0.9). Then: can one of them tell from
`cached_tokens` or TTFT whether another has sent a text (`prefix_sharing: system`)?
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from service import Service, models, say, service, spread, verdict

CALLERS = 8
PORT = 46021
ROUNDS = 5
GUESSES = 12


def keys(port: int, *, reuse: bool) -> dict[str, object]:
    listen = {"request": [f"tcp://127.0.0.1:{port}"], "stream": [f"tcp://127.0.0.1:{port + 1}"]}
    return {"listen": listen, "security": {"allow_insecure_tcp": True}, "cache": {"reuse": reuse}}


def system(n: int) -> dict[str, str]:
    facts = " ".join(f"Device {i} reports {i * n % 90} units." for i in range(45))
    return {"role": "system", "content": f"Plant {n}. {facts} Answer in one sentence."}


def crowd(box: Service, port: int, n: int) -> tuple[float, list[dict[str, int]]]:
    """Seconds for all, and the usage of each."""
    begun = time.monotonic()
    socks = []
    for caller in range(CALLERS):
        messages = [system(n), say(f"What does device {caller + 3} report?")]
        body = {"op": "generate", "messages": messages, "max_tokens": 16, "temperature": 0, "deadline_ms": 600_000}
        socks.append(box.send(body, f"tcp://127.0.0.{caller + 2}:0;127.0.0.1:{port}"))
    usage = [box.receive(sock)["usage"] for sock in socks]
    return time.monotonic() - begun, usage


def guess(box: Service, port: int, text: str, caller: int) -> dict[str, dict[str, float]]:
    body = {"op": "generate", "messages": [system(1), say(text)], "max_tokens": 1, "temperature": 0}
    return box.receive(box.send(body, f"tcp://127.0.0.{caller}:0;127.0.0.1:{port}"))


def told(box: Service, port: int) -> None:
    """B asks what A has just asked, and what nobody has asked, in turn."""
    right, wrong, cached = [], [], set()
    for n in range(GUESSES):
        secret, other = (
            f"Is my number {n * 37 + k} or a longer one that I forgot about some time ago?" for k in (0, 5)
        )
        guess(box, port, secret, 2)
        for text, into in ((secret, right), (other, wrong)) if n % 2 else ((other, wrong), (secret, right)):
            reply = guess(box, port, text, 3 if into is right else 4)
            into.append(reply["timing"]["ttft_ms"])
            cached.add(reply["usage"]["cached_tokens"])
    print(f"     cached_tokens of right and wrong guesses: {sorted(cached)}")
    ratio = statistics.median(right) / statistics.median(wrong)
    print(f"     TTFT of right guesses {spread(right)} ms, of wrong ones {spread(wrong)} ms, ratio {ratio:.3f}")
    verdict("TTFT, right against wrong guess, away from 1", abs(1 - ratio), 0.1)
    verdict("kinds of cached_tokens", len(cached), 1)


def run(model: Path) -> None:
    with service(model, **keys(PORT, reuse=True)) as on, service(model, **keys(PORT + 2, reuse=False)) as off:
        ratios, read = [], []
        for n in range(1, ROUNDS + 1):
            pairs = [(on, PORT), (off, PORT + 2)]
            took = {box: crowd(box, port, n) for box, port in (pairs if n % 2 else pairs[::-1])}
            usage = took[on][1]
            ratios.append(took[on][0] / took[off][0])
            read.append(sum(u["cached_tokens"] == 0 for u in usage))
            cached, prompt = sum(u["cached_tokens"] for u in usage), sum(u["prompt_tokens"] for u in usage)
            print(f"     {cached} of {prompt} prompt tokens cached; on {took[on][0]:.2f} s, off {took[off][0]:.2f} s")
        verdict("callers that read the message themselves, at most", max(read), 1)
        print(f"     total time, reuse / cold: {spread(ratios)}")
        verdict("total time, median", statistics.median(ratios), 0.40)
        told(on, PORT)


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        run(model)


if __name__ == "__main__":
    sys.exit(main())
