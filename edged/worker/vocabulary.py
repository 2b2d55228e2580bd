"""The model's tokens: their bytes, which of them steer, and text → tokens.

*Steering* tokens (control, unknown, end of generation) never become text and never come out of what users write.
A user-defined token is text to llama.cpp, matched even with special tokens off; one of the form <|…|> is a control
token that a conversion has labelled wrongly, and is taken for one.

Reading only: the prepare thread uses it beside the decode loop.
"""

from __future__ import annotations

import ctypes
from typing import Any

from edged.errors import EngineError
from edged.worker import llama
from edged.worker.llama import C

_ATTR_UNKNOWN, _ATTR_CONTROL, _ATTR_USER_DEFINED = 1 << 0, 1 << 3, 1 << 4  # llama_token_attr


class Vocabulary:
    def __init__(self, model: llama.Model) -> None:
        self._handle: Any = C.llama_model_get_vocab(model)
        self.size = int(C.llama_vocab_n_tokens(self._handle))
        self.bos = int(C.llama_vocab_bos(self._handle))
        self.bos_text = self._text(self.bos)
        eos = int(C.llama_vocab_eos(self._handle))
        self.eos_text = self._text(eos)
        self.add_bos = bool(C.llama_vocab_get_add_bos(self._handle)) and self.bos >= 0
        self.end = [eos] if C.llama_vocab_get_add_eos(self._handle) and eos >= 0 else []
        """What the tokenizer puts behind a whole text (never behind a prompt, which goes on)."""
        steering = {t for t in range(self.size) if self._is_steering(t)}
        named = {eos, int(C.llama_vocab_eot(self._handle))} - {-1}  # all other ends are control tokens
        self._ends = {t for t in steering | named if C.llama_vocab_is_eog(self._handle, t)}
        self._steering = steering | self._ends
        self._pieces: dict[int, bytes] = {}

    def _is_steering(self, token: int) -> bool:
        attr = C.llama_vocab_get_attr(self._handle, token)
        if attr & _ATTR_USER_DEFINED:
            text = self._text(token)
            return text.startswith("<|") and text.endswith("|>")
        return bool(attr & (_ATTR_CONTROL | _ATTR_UNKNOWN))

    def _text(self, token: int) -> str:
        text = C.llama_vocab_get_text(self._handle, token) if 0 <= token < self.size else None
        return text.decode("utf-8", "replace") if text else ""

    @property
    def specials(self) -> list[str]:
        """Texts of the steering tokens."""
        return [self._text(t) for t in sorted(self._steering)]

    def is_end(self, token: int) -> bool:
        return token in self._ends

    def pieces_and_ends(self) -> tuple[list[bytes], set[int]]:
        """The bytes of all tokens, and which of them end."""
        return [self.piece(token) for token in range(self.size)], self._ends

    def piece(self, token: int) -> bytes:
        """A token's bytes in an answer."""
        if token in self._steering:
            return b""
        data = self._pieces.get(token)
        if data is None:
            data = self._pieces[token] = self._read_piece(token)
        return data

    def _read_piece(self, token: int) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = C.llama_token_to_piece(self._handle, token, buffer, room, 0, False)
            if size >= 0:
                return buffer.raw[:size]
            room = -size

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids without BOS; `special`: texts of special tokens become those tokens. Raises EngineError."""
        data = text.encode()
        room = len(data) + 16  # a token is a byte or more, but for a prefix space
        buffer = (C.llama_token * room)()
        count = C.llama_tokenize(self._handle, data, len(data), buffer, room, False, special)
        if count < 0:
            raise EngineError(f"tokenizing {len(data)} bytes returned {count}")
        return list(buffer[:count])
