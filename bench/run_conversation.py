"""A conversation with some 800 tokens of history: turns 2 to 5 against reading everything, and after a restart.

Two daemons, one with `cache.reuse: false`, take the same turns one after the other, in changing order. The history and
the answers are the same for both. `ttft_ms` and `total_ms` are the daemon's own.
"""

from __future__ import annotations

import statistics
import sys

from service import Service, models, say, service, spread, verdict

TOPICS = ("garden", "harbour", "workshop", "kitchen", "library")
ROUNDS = 5
TURNS = 5
OFF = {"cache": {"reuse": False}}


def history(topic: str) -> list[dict[str, str]]:
    """A system message of some 800 tokens."""
    facts = " ".join(f"In the {topic}, shelf {n} holds {n * 7 % 50} boxes and {n * 3 % 20} jars." for n in range(42))
    return [{"role": "system", "content": f"You answer questions about the {topic}. {facts}"}]


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        with service(model) as on, service(model, **OFF) as off:
            ttft, total, unread = [], {"on": [0.0], "off": [0.0]}, []
            for round_, topic in enumerate(TOPICS[:ROUNDS]):
                messages, before = history(topic), 0
                for turn in range(TURNS):
                    messages.append(say(f"How many boxes are on shelf {turn * 4 + 1}, and why?"))
                    asked = [("on", on), ("off", off)] if (round_ + turn) % 2 else [("off", off), ("on", on)]
                    got = {name: box.generate(messages, max_tokens=24) for name, box in asked}
                    usage = got["on"]["usage"]
                    if turn:
                        ttft.append(got["on"]["timing"]["ttft_ms"] / got["off"]["timing"]["ttft_ms"])
                        new = usage["prompt_tokens"] - before
                        unread.append(usage["prompt_tokens"] - usage["cached_tokens"] - new)
                    for name in got:
                        total[name].append(got[name]["timing"]["total_ms"])
                    before = usage["prompt_tokens"] + usage["completion_tokens"]
                    messages.append({"role": "assistant", "content": got["on"]["text"]})
            print(f"prompt of the last turn: {usage['prompt_tokens']} tokens", flush=True)
            verdict("tokens read again beyond the new turn, at most", max(unread), 8)
            print(f"     TTFT, reuse / cold, turns 2-{TURNS}: {spread(ttft)}")
            verdict("TTFT, median", statistics.median(ttft), 0.12)
            verdict("time per request, mean", sum(total["on"]) / sum(total["off"]), 0.6)
            after_restart(on, off)


def after_restart(on: Service, off: Service) -> None:
    ratios = []
    for n, topic in enumerate(("museum", "station", "bakery")):
        messages = [*history(topic), say("How many jars are on shelf 3?")]
        first = on.generate(messages, max_tokens=24, session=f"s{n}")
        new = say("And on shelf 9?")
        stopped = on.stop()
        on.start()
        again = on.generate([new], max_tokens=24, session=f"s{n}")
        cold = off.generate([*messages, {"role": "assistant", "content": first["text"]}, new], max_tokens=24)
        ratios.append(again["timing"]["ttft_ms"] / cold["timing"]["ttft_ms"])
        usage = again["usage"]
        print(
            f"     stop {stopped:.2f} s; {usage['cached_tokens']} of {usage['prompt_tokens']} tokens from the snapshot"
        )
    verdict("TTFT after SIGTERM and a new start, median", statistics.median(ratios), 0.15)


if __name__ == "__main__":
    sys.exit(main())
