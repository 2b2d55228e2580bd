"""Mutations of any bytes: a handful of small ones at a time. All chance comes from the `Random` given."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from random import Random

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 63, 64, 127, 128, 255, 256, 1000, 4096, 32767, 65535, 65536, 1 << 20)
NUMBERS += ((1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WIDTHS = ("<B", "<H", "<I", "<Q", ">H", ">I", ">Q")
TEXT = ("²", "١", "é", "\xa0", "\x85", "\u2028", "\u202e", "\ufeff", "\ufffd", "🙂", "ǆ", "ß", "\0", "\x1b[2J", "\r\n")
"""Digits that are none, letters that change their number, what is blank to some, what moves a cursor."""
_DIGITS = re.compile(rb"-?\d+")


def mutate(rng: Random, data: bytes, words: Sequence[bytes] = (), other: bytes = b"", most: int = 4096) -> bytes:
    """`other`: a second input, to cross this one with."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        _once(rng, out, words, other)
    return bytes(out[:most])


def _once(rng: Random, out: bytearray, words: Sequence[bytes], other: bytes) -> None:
    size = len(out)
    at = rng.randrange(size + 1)
    length = min(size - at, rng.choice((1, 1, 2, 4, 8, 16, 64, 256)))
    match rng.randrange(14):
        case 0 if at < size:
            out[at] ^= 1 << rng.randrange(8)
        case 1 if at < size:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x5C, rng.randrange(256)))
        case 2:
            out[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 16)))
        case 3:
            del out[at : at + length]
        case 4:
            out[at:at] = out[at : at + length]
        case 5:
            to = rng.randrange(size + 1)
            out[to : to + length] = out[at : at + length]
        case 6:
            form = rng.choice(WIDTHS)
            limit = 1 << 8 * struct.calcsize(form)
            number = (rng.choice(NUMBERS) * rng.choice((1, 1, 1, -1)) + rng.choice((0, 0, 0, 1, -1))) % limit
            out[at : at + struct.calcsize(form)] = struct.pack(form, number)
        case 7 if words:
            out[at : at + rng.choice((0, length))] = rng.choice(words)
        case 8 if words:
            out[at:at] = rng.choice(words) * rng.choice((1, 2, 3, 50))
        case 9:
            out[at:at] = bytes(out[at : at + 1] or b"(") * rng.choice((3, 40, 700, 3000))
        case 10:
            del out[at:]
        case 11 if other:
            begin = rng.randrange(len(other))
            out[at : at + rng.choice((0, length, size))] = other[begin : begin + rng.choice((4, 16, 64, len(other)))]
        case 12:
            out[at : at + rng.choice((0, 1))] = rng.choice(TEXT).encode()
        case _:
            _number(rng, out)


def _number(rng: Random, out: bytearray) -> None:
    """One of the numbers that stand there in digits becomes another."""
    found = list(_DIGITS.finditer(out, 0, 8192))
    if found:
        one = rng.choice(found)
        number = rng.choice((*NUMBERS, -1, "1e400", "9" * 400, "0.1", "-0.0", "1e-400", "²", "٣", "1_0", "+1", "01"))
        out[one.start() : one.end()] = str(number).encode()
