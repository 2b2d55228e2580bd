"""What preparing a prompt costs: template, tokenizing, and what is remembered of beginnings. No engine runs."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from run_conversation import history
from service import models

from edged.messages import Message, Sampling, Start
from edged.worker import llama
from edged.worker.chat import ChatTemplate
from edged.worker.prepare import PromptMaker
from edged.worker.prompt import Prompts
from edged.worker.vocabulary import Vocabulary

ROUNDS = 50


def milliseconds(work: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1000


def run(model: Path) -> None:
    llama.init(debug=False)
    loaded = llama.model_load(str(model), lambda _: None)
    words = Vocabulary(loaded)
    template = ChatTemplate(
        llama.model_template(loaded), bos=words.bos_text, eos=words.eos_text, specials=words.specials
    )
    maker = PromptMaker(words, template)
    messages = [Message(m["role"], m["content"]) for m in history("garden")]  # type: ignore[arg-type]
    messages.append(Message("user", "How many boxes are on shelf 3?"))
    tokens = maker.tokens(None, messages)
    start = Start(1, None, messages, 16, [], Sampling(), scope="me")
    with_cache = Prompts(maker.tokens, maker.count, cells=4096, exact=False)

    def fresh() -> object:
        return Prompts(maker.tokens, maker.count, cells=4096, exact=False).make(start)

    print(f"     a prompt of {len(tokens)} tokens, median of {ROUNDS}")
    print(f"     template: {milliseconds(lambda: template.render(messages)):.2f} ms")
    print(f"     template and tokens: {milliseconds(lambda: maker.tokens(None, messages)):.2f} ms")
    print(f"     all of it, the beginning known: {milliseconds(lambda: with_cache.make(start)):.2f} ms")
    print(f"     all of it, the beginning new: {milliseconds(fresh):.2f} ms")


def main() -> None:
    for model in models():
        print(f"-- {model.stem}", flush=True)
        run(model)


if __name__ == "__main__":
    sys.exit(main())
