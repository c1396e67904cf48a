"""An edit changes what it names and nothing else: bytes, marks, line endings, the last newline."""

import codecs
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.workspace import EditRefused, NotText, Workspace
from cairn.workspace.content import as_text, decode, endings_of, lines_of, what_it_is
from cairn.workspace.edits import replace

# ---------------------------------------------------------------- what a file is


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"%PDF-1.7\n\xff", "a PDF document"),
        (b"RIFF\0\0\0\0WEBPVP8 \xff", "WEBP media"),
        (codecs.BOM_UTF16_LE + "hello".encode("utf-16-le"), "text in UTF-16 LE"),
        (codecs.BOM_UTF16_BE + "hello".encode("utf-16-be"), "text in UTF-16 BE"),
        (codecs.BOM_UTF32_LE + "hello".encode("utf-32-le"), "text in UTF-32 LE"),
        ("hello, world".encode("utf-16-le"), "UTF-16 LE without a mark"),
        ("hello, world".encode("utf-16-be"), "UTF-16 BE without a mark"),
        ("das Mädchen aß".encode("cp1252"), "cp1252"),
        ("你好，世界".encode("gb18030"), "gb18030"),
        ("こんにちは世界".encode("shift_jis"), "shift_jis"),
        (b"\0\1\2\3" * 100, "binary data"),
        (bytes(range(256)), "binary data"),
        (b"abc\0def", "binary data"),
        (b"a\x81 b\x81 c", "latin-1"),
    ],
)
def test_what_is_no_utf8_text_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.write("f", data)
    with pytest.raises(NotText, match=said) as refused:
        workspace.read_text("f")
    assert f"{len(data)} bytes" in str(refused.value)
    assert workspace.read("f") == data


@given(st.binary(max_size=200))
def test_bytes_are_text_only_if_they_come_back_the_same(data: bytes) -> None:
    text = as_text(data)
    assert what_it_is(data)
    if text is not None:
        file = decode(data, "f")
        assert text.encode() == data == file.encoded()


@given(st.text(st.sampled_from("ab\r\n\u2028\x0b\x85"), max_size=30))
def test_lines_join_to_the_text_they_came_from(text: str) -> None:
    lines = lines_of(text)
    assert "".join(body + ending for body, ending in lines) == text
    assert all(ending for _, ending in lines[:-1])


def test_a_byte_order_mark_is_kept_and_never_in_the_way(tmp_path: Path) -> None:
    data = "\ufeffone\r\ntwo\r\n".encode()
    file = decode(data, "f")
    assert file.text == "one\r\ntwo\r\n"
    edited = replace(file.text, "one\n", "1\n", 1, "f")
    assert file.encoded(edited.text) == "\ufeff1\r\ntwo\r\n".encode()


# ---------------------------------------------------------------- line endings


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\r\nc\r\n", "b", "B", "a\r\nB\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "a\nb\n", "A\nB\n", "A\r\nB\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b\n", "", "a\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b\n", "x\ny\nz\n", "a\r\nx\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a\r\nb", "b", "b\n", "a\r\nb\r\n"),
        ("a\r\nb\r\n", "b\n", "b", "a\r\nb"),
        ("a\nb\nc", "a\r\nb", "x\r\ny", "x\ny\nc"),
        ("a\r\nb\nc\r\nd\n", "b\nc\nd", "b\nC\nd", "a\r\nb\nC\r\nd\n"),
        ("a\r\nb\nc\r\nd\n", "b\nc\n", "b\nnew\nc\n", "a\r\nb\nnew\r\nc\r\nd\n"),
        ("a\r\nb\nc\n", "a\nb\nc\n", "a\nc\n", "a\r\nc\n"),
        ("one\rtwo\rthree", "two", "2", "one\r2\rthree"),
        ("a\r\n\r\nb\r\n", "a\n\nb", "a\nb", "a\r\nb\r\n"),
        ("x", "x", "a\nb", "a\nb"),
        ("\r\n", "\n", "\n\n", "\r\n\r\n"),
    ],
)
def test_line_endings_stay(text: str, old: str, new: str, expected: str) -> None:
    """B77."""
    assert replace(text, old, new, 1, "f").text == expected


ENDINGS = st.sampled_from(["\n", "\r\n"])
BODY = st.text(st.sampled_from("abc é"), max_size=4)
MIXED = st.lists(st.tuples(BODY, ENDINGS), max_size=12)


@settings(deadline=None)
@given(st.lists(BODY, min_size=1, max_size=10), ENDINGS, st.data())
def test_an_edit_of_uniform_lines_is_the_edit_of_the_plain_text(
    bodies: list[str], ending: str, data: st.DataObject
) -> None:
    plain = "\n".join(bodies)
    begin = data.draw(st.integers(0, len(plain)))
    end = data.draw(st.integers(begin, len(plain)))
    old, new = plain[begin:end], data.draw(st.text(st.sampled_from("ab\n"), max_size=6))
    places = [at for at in range(len(plain)) if old and plain.startswith(old, at)]
    text = plain.replace("\n", ending)
    if len(places) != 1 or old == new:
        with pytest.raises(EditRefused):
            replace(text, old, new, 1, "f")
        return
    expected = (plain[: places[0]] + new + plain[places[0] + len(old) :]).replace(
        "\n", endings_or(text, ending)
    )
    assert replace(text, old, new, 1, "f").text == expected


def endings_or(text: str, ending: str) -> str:
    return "\n" if endings_of(text) == "none" else ending


@given(MIXED, st.integers(0, 11), st.integers(0, 11))
def test_lines_outside_the_edit_keep_every_byte(
    lines: list[tuple[str, str]], first: int, last: int
) -> None:
    first, last = sorted((min(first, len(lines)), min(last, len(lines))))
    text = "".join(body + ending for body, ending in lines)
    old = "".join(f"{body}\n" for body, _ in lines[first:last])
    before = "".join(body + ending for body, ending in lines[:first])
    after = "".join(body + ending for body, ending in lines[last:])
    if not old or text.replace("\r\n", "\n").count(old) != 1:
        return
    try:
        got = replace(text, old, "NEW\n" * (last - first), 1, "f").text
    except EditRefused:  # it overlaps itself
        return
    assert got.startswith(before)
    assert got.endswith(after)
    middle = lines_of(got[len(before) : len(got) - len(after)])
    assert [ending for _, ending in middle] == [ending for _, ending in lines[first:last]]


# ---------------------------------------------------------------- exactly as often as said


def test_the_old_text_must_stand_there_exactly_as_often_as_said() -> None:
    text = "a = 1\nb = 1\nc = 1\n"
    with pytest.raises(EditRefused, match=r"3 times, not 1 \(at lines 1, 2, 3\).*count=3"):
        replace(text, "= 1", "= 2", 1, "f")
    with pytest.raises(EditRefused, match="3 times, not 2"):
        replace(text, "= 1", "= 2", 2, "f")
    assert replace(text, "= 1", "= 2", 3, "f").text == "a = 2\nb = 2\nc = 2\n"
    with pytest.raises(EditRefused, match="2 times, not 1"):
        replace("aaa", "aa", "b", 1, "f")
    with pytest.raises(EditRefused, match="overlaps itself"):
        replace("aaa", "aa", "b", 2, "f")


def test_an_edit_that_would_change_nothing_says_so() -> None:
    with pytest.raises(EditRefused, match="empty"):
        replace("a", "", "b", 1, "f")
    for old, new in (("a", "a"), ("a\n", "a\r\n")):
        with pytest.raises(EditRefused, match=r"nothing would change.*write_file"):
            replace("a\n", old, new, 1, "f")


def test_a_text_that_is_not_there_is_answered_with_the_nearest() -> None:
    text = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
    with pytest.raises(EditRefused, match=r"5\tdef two\(\):\n +6\t    return 2\n"):
        replace(text, "def two():\n    return 3", "", 1, "f")
    with pytest.raises(EditRefused, match="with just these spaces"):
        replace(text, "def two():\n  return 2", "", 1, "f")
    with pytest.raises(EditRefused, match=r"1\tdef one\(\):"):
        replace(text, "def ohne():", "", 1, "f")
    with pytest.raises(EditRefused, match="nor anything like it"):
        replace(text, "§§§§", "", 1, "f")


def test_a_search_for_the_nearest_text_in_a_large_file_ends_soon() -> None:
    text = "".join(f"line {number} {'x' * 300}\n" for number in range(20_000))
    with pytest.raises(EditRefused):
        replace(text, "lime 19999" + "y" * 5_000, "", 1, "f")
    with pytest.raises(EditRefused, match="1000000 times"):
        replace("a\n" * 1_000_000, "a\n", "b\n", 1, "f")
