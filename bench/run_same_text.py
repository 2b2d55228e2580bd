"""Is a text the same whether its prompt was read or remembered? Temperature 0, 100 prompts, 32 tokens.

Read cold (`cache.reuse: false`), read with reuse, asked again, found in a snapshot after a restart, and with neighbours
in the batch. Alone they must be equal. With neighbours matrix kernels see other shapes: where a text differs, the two
best logits at that place are shown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from service import Service, models, say, service, verdict

SYSTEM = {"role": "system", "content": "You are a helpful assistant in a small workshop. Answer briefly."}
WORDS = {
    "English": ["Name a bird that {}.", "Why does a {} need oil?"],
    "Chinese": ["请用一句话介绍{}。", "{}的首都是哪里?"],
    "code": [
        "def add_{0}(a, b):\n    # {0}\nComplete it.",
        'for (int i = 0; i < {}; i++) printf("%d", i); Output?',
    ],
    "emoji": ["🐢 and 🐇, {}?", "Tell me about 🎛️ number {} 👩‍🔧."],
}
SUBJECTS = ("swims", "clock", "北京", "pump", "gate", "法国", "river", "17", "lamp", "3", "苹果", "wheel", "🦉")
PROMPTS = 100
AT_ONCE = 4


def prompts() -> list[list[dict[str, str]]]:
    every = [shape.format(subject) for subject in SUBJECTS for shapes in WORDS.values() for shape in shapes]
    return [[SYSTEM, say(text)] for text in every[:PROMPTS]]


def answer(box: Service, messages: list[dict[str, str]]) -> dict[str, Any]:
    return box.generate(messages, max_tokens=32, logprobs=2)


def alone(box: Service, name: str, expected: list[dict[str, Any]]) -> None:
    got = [answer(box, messages) for messages in prompts()]
    differ = [n for n, (a, b) in enumerate(zip(got, expected, strict=True)) if a["text"] != b["text"]]
    cached = sum(a["usage"]["cached_tokens"] for a in got) / sum(a["usage"]["prompt_tokens"] for a in got)
    print(f"     {name}: {cached:.0%} of the prompts cached; differ: {differ or 'none'}", flush=True)
    verdict(f"{name}, texts that differ", len(differ), 0)


def together(box: Service, expected: list[dict[str, Any]]) -> None:
    got: list[dict[str, Any]] = []
    body = {"op": "generate", "max_tokens": 32, "temperature": 0, "logprobs": 2, "deadline_ms": 600_000}
    every = prompts()
    for at in range(0, len(every), AT_ONCE):
        socks = [box.send(body | {"messages": messages}) for messages in every[at : at + AT_ONCE]]
        got += [box.receive(sock) for sock in socks]
    gaps = [gap(a, b) for a, b in zip(got, expected, strict=True) if a["text"] != b["text"]]
    print(f"     with neighbours {len(gaps)} of {len(every)} differ")
    if gaps:
        shown = ", ".join(f"{g:.3f}" for g in sorted(gaps))
        print(f"     gap of the two best logits where they part (nats): {shown}")


def gap(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Between the two best, in the undisturbed run, at the first token that differs."""
    for a, b in zip(one["logprobs"], other["logprobs"], strict=False):
        if a["id"] != b["id"]:
            best, second = b["top"][:2]
            return float(best["logprob"] - second["logprob"])
    return float("nan")


def run(model: Path) -> None:
    with service(model, cache={"reuse": False}) as off:
        expected = [answer(off, messages) for messages in prompts()]
    with service(model, cache={"disk": "all"}) as on:
        alone(on, "read with reuse", expected)
        alone(on, "asked again", expected)
        on.stop()
        on.start()
        alone(on, "from snapshots", expected)
        together(on, expected)


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        run(model)


if __name__ == "__main__":
    sys.exit(main())
