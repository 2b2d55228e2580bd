from hypothesis import given
from hypothesis import strategies as st

from edged.worker.prefix import ALIGN, Rules, Wanted, common, usable

TOKENS = st.lists(st.integers(0, 2), max_size=60)


@given(TOKENS, TOKENS, TOKENS)
def test_common_is_the_longest_common_prefix(head: list[int], a: list[int], b: list[int]) -> None:
    a, b = head + a, head + b
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common(a, b) == expected


@given(
    TOKENS.filter(bool),
    TOKENS,
    TOKENS,
    st.sampled_from(["identity", "system", "all"]),
    st.tuples(st.integers(0, 60), st.booleans()),
)
def test_what_may_be_used(head: list, mine: list, other: list, sharing: str, more: tuple[int, bool]) -> None:
    floor, same = more
    wanted, held = Wanted(head + mine, "me", len(head)), head + other
    length = usable(Rules(sharing), wanted, Wanted(held, "me" if same else "you", len(head)), floor)
    assert 0 <= length < len(wanted.tokens), "the last token is always read"
    assert wanted.tokens[:length] == held[:length]
    assert length == 0 or length >= floor
    assert length % ALIGN == 0 or length - length % ALIGN < floor
    if not same and sharing == "identity":
        assert length == 0
    if not same and sharing == "system":
        assert length <= len(head)


def test_a_part_of_anothers_system_message_is_never_used() -> None:
    secret = list(range(100, 140))
    for guess in range(1, 40):
        wanted = Wanted([*secret[:guess], *range(60)], "me", guess)
        assert usable(Rules(), wanted, Wanted([*secret, 1, 2, 3], "you", len(secret))) == 0
