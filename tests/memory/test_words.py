"""How texts are taken apart: the same for what is kept and what is asked, whatever they hold."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.core.words import LONGEST_WORD, MOST_TERMS, asked, normal, stem, words

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()), max_size=300)
"""Lone surrogates and controls too."""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The Release is DEPLOYED", {"the", "releas", "is", "deploy"}),
        ("绿色", {"绿", "色", "绿色"}),
        ("用MySQL 8做缓存", {"用", "mysql", "8", "做", "缓", "存", "做缓", "缓存"}),
        ("東京タワー", {"東", "京", "タ", "ワ", "ー", "東京", "京タ", "タワ", "ワー"}),
        ("부산", {"부", "산", "부산"}),
        ("ＷＯＲＤ ｶﾀｶﾅ", {"word", "カ", "タ", "ナ", "カタ", "タカ", "カナ"}),
        ("Straße ﬁne İ", {"strasse", "fine", "i\u0307"}),
        ("a\u200bb soft\u00adhyphen", {"ab", "softhyphen"}),
        ("नमस्ते мир", {"नमस्ते", "мир"}),
        ("don't-stop.now@x", {"don", "t", "stop", "now", "x"}),
        ("🙂 ** -- \x00 \ud800", set()),
        ("", set()),
    ],
)
def test_words_are_found_in_scripts_with_spaces_and_pairs_in_those_without(text, found):
    if text == "Straße ﬁne İ":
        found = {stem(each) for each in found}
    assert set(words(text)) == found


@given(ANYTHING)
def test_no_text_breaks_it_and_what_comes_out_can_be_stored(text):
    for word in [*words(text), *asked(text)]:
        word.encode()
        assert 0 < len(word) <= LONGEST_WORD
        assert not set(word) & set(" \n\t\0\"'*():-")


@given(ANYTHING)
def test_what_is_kept_is_found_by_its_own_words_and_the_normal_form_is_its_own(text):
    assert normal(normal(text)) == normal(text)
    assert words(normal(text)) == words(text)
    assert asked(text).keys() <= words(text).keys()
    if words(text):
        assert asked(text)


@given(ANYTHING)
def test_width_case_and_composition_make_no_difference(text):
    composed = unicodedata.normalize("NFC", text)
    assert words(composed) == words(unicodedata.normalize("NFD", text))
    assert words(text.casefold()) == words(text)


@given(st.lists(st.sampled_from(["tea", "绿色", "redis", "부산", "ラジオ", "42"]), max_size=8))
def test_pieces_are_found_whatever_stands_between_them(pieces):
    separate = words(" ".join(pieces))
    for gap in ("\n", ", ", " — ", "\t*\t", '"'):
        assert words(gap.join(pieces)) == separate


def test_the_forms_of_an_english_word_are_one_word():
    for forms in (
        ["meeting", "meetings"],
        ["run", "runs", "running"],
        ["store", "stores", "stored", "storing"],
        ["policy", "policies"],
        ["study", "studies", "studied", "studying"],
        ["box", "boxes"],
        ["class", "classes"],
        ["release", "releases", "released"],
    ):
        assert len({stem(form) for form in forms}) == 1, forms
    for word in ("bus", "this", "s3", "über", "aed", "ring", "bed"):
        assert stem(word) == word


def test_words_that_hold_a_sentence_together_count_only_when_there_are_no_others():
    assert list(asked("where is the release")) == ["releas"]
    assert list(asked("what is it")) == ["what", "is", "it"]
    assert "的" not in asked("她的绿色")
    assert set(asked("的")) == {"的"}


def test_a_question_of_any_length_is_answered_soon_by_its_beginning_and_its_end():
    text = "alpha " + "x" * 1_000_000 + " omega"
    begun = time.process_time()
    found = asked(text)
    assert {"alpha", "omega"} <= found.keys()
    assert time.process_time() - begun < 1
    many = asked(" ".join(f"w{n}" for n in range(10_000)))
    assert len(many) == MOST_TERMS


def test_an_expanding_letter_stays_within_bounds():
    assert words("\ufdfa" * 4_000).total() < 100_000
