import pytest

pytest.importorskip("llama_cpp")

from edged.worker.sampler import draw_seed


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    assert draw_seed(7, 3) == draw_seed(7, 3)
    seeds = {draw_seed(s, i) for s in range(100) for i in range(100)}
    assert len(seeds) > 9990, "neighbours do not collide"


def test_the_known_values_stay() -> None:
    """An answer carried over to a newer version must go on as it began."""
    assert [draw_seed(0, 0), draw_seed(7, 1), draw_seed(2**32 - 1, 4095)] == [2065550767, 633578304, 4191998152]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_32_bits_and_never_llama_cpps_random_seed(seed: int) -> None:
    for position in range(2000):
        assert 0 <= draw_seed(seed, position) < 0xFFFFFFFF
