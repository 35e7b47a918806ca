"""What is saved of a stream comes back as it was, or is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainminder.errors import StateError
from trainminder.stream.saving import FORMAT, pack, unpack
from trainminder.types import Verdict


@given(place=st.integers(0, 10_000_000), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=60)
def test_damage_is_noticed_wherever_it_is(place: int, flip: int) -> None:
    saved = bytearray(pack({"a": np.arange(50.0), "b": ("x", None, 1.5, float("inf"))}, ()))
    saved[place % len(saved)] ^= flip
    with pytest.raises(StateError, match=r"no saved stream|format|damaged"):
        unpack(bytes(saved), ())


@pytest.mark.parametrize("length", [0, 5, 60])
def test_half_a_state_is_damaged(length: int) -> None:
    with pytest.raises(StateError, match=r"no saved stream|damaged"):
        unpack(pack((1, 2), ())[:length], ())


def test_another_format_is_refused_by_its_number() -> None:
    saved = bytearray(pack((1, 2), ()))
    saved[len(b"trainminder-stream") + 1] = FORMAT + 1
    with pytest.raises(StateError, match=f"saved in format {FORMAT + 1}, and this version reads format {FORMAT}"):
        unpack(bytes(saved), ())


def test_only_what_is_named_is_saved_and_made() -> None:
    verdict = Verdict("gpu-03", None, "power", 1.0, 2.0, 3.0)
    with pytest.raises(TypeError, match="Verdict"):
        pack(verdict, ())
    saved = pack(verdict, (Verdict,))
    assert unpack(saved, (Verdict,)) == verdict
    with pytest.raises(StateError, match="cannot be read"):
        unpack(saved, ())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=20,
    )
)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    assert unpack(pack(value, ()), ()) == value


def test_long_names_that_occur_again_are_the_same_object_when_they_come_back() -> None:
    names = tuple(f"gpu-{number:02d}" for number in range(40))
    one, two = unpack(pack((names, {"again": tuple(names)}), ()), ())
    assert one == names
    assert two["again"] is one
