"""Keys that providers repeat: hidden whole and in part, while the rest can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.models.hiding import HIDDEN, Hider, secrets_of

KEY = "Zq7-canary.8fJx2LmPw04tVb"
HIDER = Hider([KEY], environ={})


@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect API key provided: {KEY}. See the page of keys.",
        f"Bearer {KEY}",
        f'{{"x-api-key": "{KEY}"}}',
        "wrong key Zq7-canary.8fJ***********",
        "wrong key Zq7-****04tVb",
        "your api key: ****04tVb is invalid",
        "wrong key Zq7-...tVb",
        "wrong key Zq7-…",
        "wrong key Zq7-**Vb",
        "the key Zq7-canary is not active",
        "the key that begins with Zq7-ca and ends in 4tVb.",
        "a piece from its middle: ary.8fJx2LmP",
        f"GET https://host/v1/models?alt=json&key={KEY}&x=1 failed",
        "GET https://host/v1?key=other failed",
        "GET https://host/v1?api_key=other failed",
        "GET https://user:other@host/v1 failed",
    ],
)
def test_a_key_is_not_shown_whole_or_in_part(said):
    shown = HIDER.text(said)
    assert "«" in shown
    for piece in ("Zq7", "canary", "8fJ", "4tVb", "other"):
        assert piece not in shown
    assert HIDER.text(shown) == shown, "twice is once"


@pytest.mark.parametrize(
    "said",
    [
        "The model `gpt-5` does not exist or you do not have access to it.",
        "**Rate limit** reached for requests... try again in 20s",
        "no such key; see https://host/keys?page=2 or mail you@host.example",
        "Zq7",
    ],
)
def test_words_without_a_key_stay_as_they_are(said):
    assert HIDER.text(said) == said


def test_keys_of_the_environment_and_what_looks_like_one_are_hidden_too():
    hider = Hider(environ={"SHOP_TOKEN": "long-canary-1234", "SHOP_NAME": "Tea and more"})
    said = "long-canary-1234 sk-proj-abcdefghijklmnop1234 Tea and more"
    assert hider.text(said) == "«SHOP_TOKEN» «KEY» Tea and more"


def test_a_key_too_short_to_be_told_from_a_word_leaves_words_alone():
    assert Hider(["ollama"], environ={}).text("ollama: no such model") == "ollama: no such model"


def test_headers_that_authorise_are_secrets_and_others_are_not():
    headers = {"X-Team": "tea", "X-Gateway-Key": "gate-canary", "Authorization": "Basic dXNlcg=="}
    assert secrets_of("k", headers) == ("k", "gate-canary", "dXNlcg==")


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_around_it_shows_a_key(before, after):
    shown = HIDER.text(before + KEY + after)
    assert KEY not in shown
    assert HIDDEN in shown or "«" in shown
