"""Our way to tokens against llama.cpp's own examples: texts, and the ids that the first tokenizers made of them.

The texts hold no special tokens, and are tokenized as a user's text is. All vocabularies with examples agree in all of
them; llama.cpp's aquila, baichuan, gpt-neox and nomic-bert-moe come without.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from edged.worker import llama
from edged.worker.llama import C
from edged.worker.vocabulary import Vocabulary

SCRIPT = Path(__file__).parents[2] / "scripts" / "vocabularies.py"
sys.path.insert(0, str(SCRIPT.parent))
import vocabularies  # noqa: E402

SEPARATOR = "\n__ggml_vocab_test__\n"
BYTES = ("deepseek-coder", "falcon", "gpt-2", "llama-bpe", "qwen2", "qwen35", "refact", "starcoder")
"""Byte-level: the pieces are the text again. Others put a blank before it, or keep no blanks."""


@pytest.fixture(scope="module")
def directory() -> Path:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(done.stderr.strip())
    return Path(done.stdout.strip())


def examples(path: Path) -> list[tuple[str, list[int]]]:
    texts = Path(f"{path}.inp").read_bytes().decode().removesuffix(SEPARATOR).split(SEPARATOR)
    ids = [[int(token) for token in line.split()] for line in Path(f"{path}.out").read_text().splitlines()]
    assert len(texts) == len(ids) > 40
    return list(zip(texts, ids, strict=True))


@pytest.mark.parametrize("name", vocabularies.NAMES)
def test_texts_become_the_expected_tokens(directory, name):
    path = directory / f"ggml-vocab-{name}.gguf"
    llama.init(debug=False)
    params = C.llama_model_default_params()
    params.vocab_only = True
    model = C.llama_model_load_from_file(str(path).encode(), params)
    assert model
    try:
        vocabulary = Vocabulary(model)
        for text, expected in examples(path):
            got = vocabulary.tokenize(text, special=False)
            assert got == expected, repr(text)
            if name in BYTES:
                assert b"".join(map(vocabulary.piece, got)) == text.encode()
    finally:
        C.llama_model_free(model)


def test_the_vocabularies_are_those_of_the_library_in_use():
    assert vocabularies.VERSION == llama.VERSION
