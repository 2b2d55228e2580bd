from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edged.worker.detok import Detokenizer

STOPS = st.lists(st.text("abé日", min_size=1, max_size=4), max_size=4)
TEXT = st.text("abé日😀", max_size=40)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def run(parts: list[bytes], stops: list[str]) -> tuple[str, str | None, list[str]]:
    detok = Detokenizer(stops)
    shown = [detok.feed(p) for p in parts]
    shown.append(detok.finish())
    return "".join(shown), detok.stopped, shown


def reference(data: bytes, stops: list[str]) -> tuple[str, str | None]:
    text = data.decode("utf-8", "ignore")
    for end in range(1, len(text) + 1):
        done = [s for s in stops if text[:end].endswith(s)]
        if done:
            stop = max(done, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(TEXT, st.lists(st.integers(0, 200), max_size=12), STOPS)
def test_any_split_gives_the_same_text(text: str, cuts: list[int], stops: list[str]) -> None:
    data = text.encode()
    whole, stopped, _ = run(pieces(data, cuts), stops)
    assert (whole, stopped) == reference(data, stops)


@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=12), STOPS)
def test_invalid_bytes_are_dropped_wherever_they_are_cut(data: bytes, cuts: list[int], stops: list[str]) -> None:
    whole, stopped, shown = run(pieces(data, cuts), stops)
    assert (whole, stopped) == reference(data, stops)
    assert all(s.encode().decode() == s for s in shown)


@given(TEXT, STOPS)
def test_only_an_undecided_suffix_is_held(text: str, stops: list[str]) -> None:
    detok = Detokenizer(stops)
    shown = ""
    for n, char in enumerate(text, 1):
        shown += detok.feed(char.encode())
        if detok.stopped:
            break
        held = text[len(shown) : n]
        assert held == "" or any(s.startswith(held) and s != held for s in stops)


def test_a_character_is_held_until_whole() -> None:
    detok = Detokenizer([])
    assert [detok.feed(b"\xe6\x97"), detok.feed(b"\xa5!"), detok.feed(b"\xf0\x9f"), detok.finish()] == [
        "",
        "日!",
        "",
        "",
    ]


def test_the_flush_lets_go_of_a_beginning_that_never_ended() -> None:
    detok = Detokenizer(["STOP"])
    assert [detok.feed(b"go STO"), detok.finish(), detok.stopped] == ["go ", "STO", None]


def test_earliest_match_wins() -> None:
    detok = Detokenizer(["water", "al w"])
    assert (detok.feed(b"tidal water"), detok.stopped, detok.feed(b"more"), detok.finish()) == ("tid", "al w", "", "")
