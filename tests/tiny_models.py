"""Tiny models with random weights, one for each kind of memory that llama.cpp has: they load in milliseconds.

What they write means nothing, but which token follows which is as fixed as in a large model: the seed is. Names and
shapes of the tensors are those of llama.cpp's `src/models/*.cpp`, dimensions in its order (the fastest first).

* `llama`: attention over everything.
* `gemma3`: every other layer sees a sliding window of 16 tokens.
* `mamba`: recurrent, no attention at all.
* `lfm2`, `jamba`, `qwen35`: hybrids, every other layer recurrent (a short convolution; Mamba; a gated delta net).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

KINDS = ("llama", "gemma3", "mamba", "lfm2", "jamba", "qwen35")
ATTENTION = ("llama", "gemma3")
"""Parts of their sequences can be removed and copied, when the window is kept whole."""

EMBD, FF, HEADS, KV_HEADS, HEAD = 64, 96, 2, 1, 32  # a head is one block of q8_0 and q4_0
LAYERS, CONTEXT, WINDOW = 4, 2048, 16
CONV, STATE, INNER, DT_RANK = 4, 8, 2 * EMBD, 4  # of Mamba
DELTA_STATE, DELTA_GROUPS, DELTA_HEADS = 32, 1, 2
DELTA_INNER = DELTA_STATE * DELTA_HEADS

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "Ġ the", "i n", "e r", "o n", "Ġ a", "in g", "o r", "e n")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Shape = tuple[int, ...]


def tiny(kind: str, directory: Path) -> Path:
    """Writes the model of this kind, unless it is there already, and returns its path."""
    path = directory / f"tiny-{kind}.gguf"
    if not path.exists():
        # under another name first: two test processes may share the directory
        partial = path.with_suffix(".partial")
        _write(kind, partial)
        partial.rename(path)
    return path


def _write(kind: str, path: Path) -> None:
    writer = gguf.GGUFWriter(str(path), kind)
    writer.add_name(f"tiny {kind}")
    _parameters(writer, kind)
    _vocabulary(writer)
    random = np.random.default_rng([7, *kind.encode()])
    for name, shape in _tensors(kind):
        writer.add_tensor(name, _values(name, shape, random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _recurrent(kind: str, layer: int) -> bool:
    return kind == "mamba" or (kind not in ATTENTION and layer % 2 == 0)


def _parameters(writer: gguf.GGUFWriter, kind: str) -> None:
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBD)
    writer.add_block_count(LAYERS)
    writer.add_layer_norm_rms_eps(1e-5)
    if kind == "mamba":
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
    else:
        writer.add_feed_forward_length(FF)
        writer.add_head_count(HEADS)
        per_layer = [0 if _recurrent(kind, i) else KV_HEADS for i in range(LAYERS)]  # 0 is how two kinds say: recurrent
        writer.add_head_count_kv(per_layer if kind in ("lfm2", "jamba") else KV_HEADS)
        writer.add_key_length(HEAD)
        writer.add_value_length(HEAD)
        writer.add_rope_dimension_count(HEAD)
        writer.add_rope_freq_base(10000.0)
    if kind == "gemma3":
        writer.add_sliding_window(WINDOW)
        writer.add_sliding_window_pattern([i % 2 == 0 for i in range(LAYERS)])
    if kind == "lfm2":
        writer.add_shortconv_l_cache(3)
    if kind in ("mamba", "jamba"):
        writer.add_ssm_conv_kernel(CONV)
        writer.add_ssm_inner_size(INNER)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(DT_RANK)
    if kind == "qwen35":
        writer.add_rope_dimension_sections([6, 5, 5, 0])
        writer.add_full_attention_interval(2)
        writer.add_ssm_conv_kernel(CONV)
        writer.add_ssm_inner_size(DELTA_INNER)
        writer.add_ssm_state_size(DELTA_STATE)
        writer.add_ssm_time_step_rank(DELTA_HEADS)
        writer.add_ssm_group_count(DELTA_GROUPS)


def _vocabulary(writer: gguf.GGUFWriter) -> None:
    """Byte-level BPE: every byte, a few merges, the specials of ChatML."""
    tokens = [*_byte_symbols(), *(merge.replace(" ", "") for merge in MERGES), *SPECIALS]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(MERGES)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in SPECIALS else normal for token in tokens])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


VOCABULARY = 256 + len(MERGES) + len(SPECIALS)


def _byte_symbols() -> list[str]:
    """GPT-2's letter for each byte: printable ones stand for themselves, the others lie from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _tensors(kind: str) -> Iterator[tuple[str, Shape]]:
    yield "token_embd.weight", (EMBD, VOCABULARY)
    yield ("token_embd_norm.weight" if kind == "lfm2" else "output_norm.weight"), (EMBD,)
    yield "output.weight", (EMBD, VOCABULARY)  # its own: shared with the input, attention repeats one token
    for i in range(LAYERS):
        for name, shape in _layer(kind, recurrent=_recurrent(kind, i)):
            yield f"blk.{i}.{name}", shape


def _layer(kind: str, *, recurrent: bool) -> Iterator[tuple[str, Shape]]:
    yield "attn_norm.weight", (EMBD,)
    if not recurrent:
        yield from _attention(kind)
    elif kind == "lfm2":
        yield "shortconv.conv.weight", (3, EMBD)
        yield "shortconv.in_proj.weight", (EMBD, 3 * EMBD)
        yield "shortconv.out_proj.weight", (EMBD, EMBD)
    elif kind == "qwen35":
        yield from _delta_net()
    else:
        yield from _mamba(norms=kind == "jamba")
    if kind != "mamba":
        if kind == "qwen35":
            yield "post_attention_norm.weight", (EMBD,)
        else:
            yield "ffn_norm.weight", (EMBD,)
        yield "ffn_gate.weight", (EMBD, FF)
        yield "ffn_up.weight", (EMBD, FF)
        yield "ffn_down.weight", (FF, EMBD)
    if kind == "gemma3":
        yield "post_attention_norm.weight", (EMBD,)
        yield "post_ffw_norm.weight", (EMBD,)


def _attention(kind: str) -> Iterator[tuple[str, Shape]]:
    gated = 2 if kind == "qwen35" else 1  # the query carries its gate
    yield "attn_q.weight", (EMBD, HEAD * HEADS * gated)
    yield "attn_k.weight", (EMBD, HEAD * KV_HEADS)
    yield "attn_v.weight", (EMBD, HEAD * KV_HEADS)
    yield "attn_output.weight", (HEAD * HEADS, EMBD)
    if kind in ("gemma3", "lfm2", "qwen35"):
        yield "attn_q_norm.weight", (HEAD,)
        yield "attn_k_norm.weight", (HEAD,)


def _mamba(*, norms: bool) -> Iterator[tuple[str, Shape]]:
    yield "ssm_in.weight", (EMBD, 2 * INNER)
    yield "ssm_conv1d.weight", (CONV, INNER)
    yield "ssm_conv1d.bias", (INNER,)
    yield "ssm_x.weight", (INNER, DT_RANK + 2 * STATE)
    yield "ssm_dt.weight", (DT_RANK, INNER)
    yield "ssm_dt.bias", (INNER,)
    yield "ssm_a", (STATE, INNER)
    yield "ssm_d", (INNER,)
    yield "ssm_out.weight", (INNER, EMBD)
    if norms:
        yield "ssm_dt_norm.weight", (DT_RANK,)
        yield "ssm_b_norm.weight", (STATE,)
        yield "ssm_c_norm.weight", (STATE,)


def _delta_net() -> Iterator[tuple[str, Shape]]:
    width = 2 * DELTA_STATE * DELTA_GROUPS + DELTA_INNER
    yield "attn_qkv.weight", (EMBD, width)
    yield "attn_gate.weight", (EMBD, DELTA_INNER)
    yield "ssm_conv1d.weight", (CONV, width)
    yield "ssm_dt.bias", (DELTA_HEADS,)
    yield "ssm_a", (DELTA_HEADS,)
    yield "ssm_beta.weight", (EMBD, DELTA_HEADS)
    yield "ssm_alpha.weight", (EMBD, DELTA_HEADS)
    yield "ssm_norm.weight", (DELTA_STATE,)
    yield "ssm_out.weight", (DELTA_INNER, EMBD)


def _values(name: str, shape: Shape, random: np.random.Generator) -> np.ndarray:
    """Norms are one and decays negative, or the numbers run away; the rest keeps the size of what it multiplies."""
    if name.endswith("norm.weight"):
        return np.ones(shape, dtype=np.float32)
    noise = random.standard_normal(shape[::-1], dtype=np.float32)
    if name.endswith("ssm_a"):
        return -0.05 - 0.1 * np.abs(noise)
    if len(shape) == 1:
        return 0.1 * noise
    return noise * np.float32(1 / math.sqrt(shape[0]))
