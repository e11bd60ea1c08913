"""The output of a sandbox keeps the head and tail of a stream of any length."""

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.sandbox._process import HeadAndTail


def test_short_output_is_whole() -> None:
    kept = HeadAndTail(100)
    kept.add(b"first ")
    kept.add(b"second")
    assert kept.output().text == "first second"
    assert kept.output().total_bytes == 12


def test_long_output_keeps_its_ends() -> None:
    kept = HeadAndTail(8)
    for letter in b"abcdefghijkl":
        kept.add(bytes([letter]))
    assert kept.output().text == "ab\n[4 bytes left out]\nghijkl"
    assert kept.output().total_bytes == 12


@settings(deadline=None)  # of time, which a busy machine takes
@given(st.lists(st.binary(max_size=50)), st.integers(min_value=0, max_value=64))
def test_any_chunks_give_the_same_ends(chunks: list[bytes], limit_bytes: int) -> None:
    kept = HeadAndTail(limit_bytes)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    head, tail = whole[: limit_bytes // 4], whole[limit_bytes // 4 :][-(limit_bytes - limit_bytes // 4) or len(whole) :]
    text = kept.output().text
    assert text.startswith(head.decode(errors="replace")[:-3])
    assert text.endswith(tail.decode(errors="replace")[3:])
    assert kept.output().total_bytes == len(whole)
