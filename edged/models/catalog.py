"""The models that edged knows by name, as data.

Sizes and sums of the hub's files are those that the hub shows for the pinned revision, taken from public records that
agree with each other; `edgectl model pull` compares them with what the hub says now and with what arrives. An entry
whose sum could not be had would carry None; then what the hub says at the pull is what is compared.

`memory` is an estimate: edged.system.need with the default profile (context 4096, 4 sequences, batch 128, f16 KV).
A test computes each again from the model's geometry.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from edged.models.embedded import REQUIREMENT
from edged.models.embedded import Source as Embedded


class Entry(Struct, frozen=True, kw_only=True):
    """`repo` is a repository of the hub, or None for the package that carries the embedded default."""

    name: str
    file: str
    repo: str | None
    revision: str = "main"
    size: int
    sha256: str | None
    quantization: str
    memory: int
    licence: str
    boards: str
    note: str

    @property
    def source(self) -> str:
        return f"hf:{self.repo}/{self.file}@{self.revision[:12]}" if self.repo else f"pip:{REQUIREMENT}"


_QWEN25: Final = "Qwen/Qwen2.5-0.5B-Instruct-GGUF"
_QWEN25_AT: Final = "9217f5db79a29953eb74d5343926648285ec7e67"

ENTRIES: Final = (
    Entry(
        name="smollm2-135m",
        file=Embedded().name,
        repo=None,
        size=Embedded().size,
        sha256=Embedded().sha256,
        quantization="Q4_1",
        memory=267_707_456,
        licence="Apache-2.0",
        boards="any 64-bit board, 512 MB with context 1024",
        note="the self-test model: proves the road, answers are often wrong",
    ),
    Entry(
        name="qwen2.5-0.5b",
        file="qwen2.5-0.5b-instruct-q4_k_m.gguf",
        repo=_QWEN25,
        revision=_QWEN25_AT,
        size=491_400_032,
        sha256="74a4da8c9fdbcd15bd1f6d01d621410d31c6fc00986f5eb687824e7b93d7a9db",
        quantization="Q4_K_M",
        memory=631_457_632,
        licence="Apache-2.0",
        boards="1 GB with nothing else on it, 2 GB and up",
        note="a little better than Q4_0 for its size; for boards without dot-product instructions (Pi 3, Pi 4)",
    ),
    Entry(
        name="qwen2.5-0.5b-q4_0",
        file="qwen2.5-0.5b-instruct-q4_0.gguf",
        repo=_QWEN25,
        revision=_QWEN25_AT,
        size=428_730_208,
        sha256="7671c0c304e6ce5a7fc577bcb12aba01e2c155cc2efd29b2213c95b18edaf6ed",
        quantization="Q4_0",
        memory=568_787_808,
        licence="Apache-2.0",
        boards="2 GB and up",
        note="the fast one where the CPU has dot-product instructions (Pi 5); repacked at load: up to its size on top",
    ),
    Entry(
        name="qwen3-0.6b-q4_0",
        file="Qwen3-0.6B-Q4_0.gguf",
        repo="ggml-org/Qwen3-0.6B-GGUF",
        revision="a41486f827d17edd055fe6b3b0ba3f8d427c0519",
        size=428_970_080,
        sha256="da2572f16c06133561ce56accaa822216f2391ef4d37fba427801cd6736417d4",
        quantization="Q4_0",
        memory=986_885_216,
        licence="Apache-2.0",
        boards="4 GB and up, 2 GB with context 2048",
        note="newer and better; its KV cache is nine times that of Qwen2.5, and it thinks before it answers "
        "(end the prompt with /no_think, or give it max_tokens for both)",
    ),
)


def by_name(name: str) -> Entry | None:
    return next((entry for entry in ENTRIES if entry.name == name.lower()), None)


def by_file(file: str) -> Entry | None:
    """The entry whose file has this name, in any case of letters."""
    return next((entry for entry in ENTRIES if entry.file.lower() == file.lower()), None)


def by_sha256(sha256: str) -> Entry | None:
    return next((entry for entry in ENTRIES if entry.sha256 == sha256), None)
