"""What a remote model is given is looked at before anything is asked: names, keys, options."""

from math import inf, nan

import pytest

from cairn import Agent, ConfigError, Price, RemoteModel, TrafficLimits
from cairn.models import check_model
from cairn.models.endpoints import ENDPOINTS, NO_KEY, address_of, key_of
from cairn.models.option_values import SETTINGS

OPENAI, OLLAMA = ENDPOINTS["openai"], ENDPOINTS["ollama"]
BAD_KEYS = {
    "a space": "sk-secret 4711",
    "a line end": "sk-secret\n4711",
    "bent quotes": "“sk-secret-4711”",
    "a zero": "sk-secret\0004711",
}

# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
@pytest.mark.parametrize("given", [True, False], ids=["given", "in a variable"])
def test_a_key_that_can_be_none_is_named_by_its_place_and_never_shown(key, given):
    environ = {} if given else {"OPENAI_API_KEY": key}
    with pytest.raises(ConfigError) as caught:
        key_of(OPENAI, key if given else "", environ)
    said = str(caught.value)
    assert ("api_key=" if given else "OPENAI_API_KEY") in said
    assert "on one line, without quotes" in said
    assert "secret" not in said
    assert "4711" not in said


def test_a_key_is_looked_at_before_anything_is_asked(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", BAD_KEYS["bent quotes"])
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        RemoteModel("openai:gpt-5").check()


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_a_blank_key_or_address_counts_as_not_set(blank):
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        key_of(OPENAI, blank, {"OPENAI_API_KEY": blank})
    second = {"GEMINI_API_KEY": blank, "GOOGLE_API_KEY": "k"}
    assert key_of(ENDPOINTS["google"], blank, second) == "k"
    assert key_of(OLLAMA, blank, {"OLLAMA_API_KEY": blank}) == NO_KEY
    assert address_of(OPENAI, blank, {"OPENAI_BASE_URL": blank}) == OPENAI.base_url


def test_space_around_a_key_is_no_part_of_it():
    assert key_of(OPENAI, "", {"OPENAI_API_KEY": " k-1\n"}) == "k-1"


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("name", "copied", "right"),
    [
        ("compatible:m", "https://me:pw@h.example/v1/chat/completions/", "https://h.example/v1"),
        ("openai:m", "https://h.example/v1/responses", "https://h.example/v1"),
        ("anthropic:m", "https://h.example/v1/messages", "https://h.example"),
    ],
)
def test_an_address_that_goes_on_to_the_requests_is_refused_with_the_right_one(name, copied, right):
    with pytest.raises(ConfigError) as caught:
        RemoteModel(name, base_url=copied)
    assert caught.value.fix == f"Write {right!r}"
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL says ends in"):
        address_of(OPENAI, "", {"OPENAI_BASE_URL": copied})
    assert RemoteModel(name, base_url=right).base_url == right


# ---------------------------------------------------------------- options

WRONG = [
    ("price", 3),
    ("price", {"input": 1}),
    ("api_key", b"secret"),
    ("base_url", 8000),
    ("base_url", "localhost:8000"),
    ("window", "big"),
    ("window", 1.5),
    ("window", -1),
    ("window", True),
    ("max_output", 0),
    ("max_output", 1e3),
    ("max_output", "many"),
    ("timeout_s", "60"),
    ("timeout_s", 0),
    ("timeout_s", nan),
    ("timeout_s", None),
    ("stall_s", inf),
    ("stall_s", True),
    ("stream", "no"),
    ("stream", 0),
    ("takes_tools", None),
    ("cache", 1),
    ("finish_required", "false"),
    ("traffic", 8),
    ("settings", [("temperature", 1)]),
    ("headers", "X: y"),
    ("headers", {"X-A": 1}),
    ("headers", {"X-A": "secret\r\nX-B: c"}),
    ("headers", {"X-A": "secret“"}),
    ("headers", {"X A": "c"}),
    ("headers", {1: "c"}),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_value_that_cannot_be_used_names_its_option_and_what_to_give(option, value):
    with pytest.raises(ConfigError, match=option) as caught:
        RemoteModel("compatible:m", **{"base_url": "http://127.0.0.1:1/v1", option: value})
    assert caught.value.fix
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_another_kind_is_named(name):
    for value in (None, object(), {1}) if name != "extra_body" else (None, [1], "x"):
        with pytest.raises(ConfigError, match=rf"RemoteModel\.settings\.{name}"):
            RemoteModel("openai:m", settings={name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": "0.2"},
        {"temperature": nan},
        {"top_p": True},
        {"seed": 1.5},
        {"stop_sequences": "END"},
        {"stop_sequences": [1]},
        {"thinking": "a lot"},
        {"temprature": 1},
    ],
)
def test_a_setting_that_looks_right_and_is_not_is_named(wrong):
    (name,) = wrong
    with pytest.raises(ConfigError, match=rf"RemoteModel\.settings\.{name}"):
        RemoteModel("openai:m", settings=wrong)


def test_good_options_are_taken():
    settings = {
        "extra_body": {"a": 1},
        "frequency_penalty": -1,
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "seed": 7,
        "stop_sequences": ["END"],
        "temperature": 0,
        "thinking": "high",
        "top_k": 4,
        "top_p": 0.9,
    }
    assert set(settings) == set(SETTINGS)
    model = RemoteModel(
        "compatible:m",
        base_url="http://127.0.0.1:1/v1/",
        api_key="k",
        price=Price(input=1),
        window=8_193,
        timeout_s=1,
        stall_s=0.5,
        traffic=TrafficLimits(in_flight=1),
        settings=settings,
        headers={"X-Team": "tea & biscuits"},
    )
    assert (model.window, model.timeout_s) == (8_193, 1)
    assert model.base_url == "http://127.0.0.1:1/v1"


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["openai:", "local:", "google: "])
def test_a_provider_without_a_model_says_that_no_model_is_named(name):
    for look in (RemoteModel, lambda name: Agent("a", name)):
        with pytest.raises(ConfigError, match="names no model") as caught:
            look(name)
        assert name.strip() in caught.value.fix


@pytest.mark.parametrize("name", ["openai: gpt-5", "openai:gpt-5 "])
def test_space_around_a_name_is_refused_with_the_right_one(name):
    with pytest.raises(ConfigError) as caught:
        check_model(name, "model")
    assert caught.value.fix == "Write 'openai:gpt-5'"


@pytest.mark.parametrize(
    ("called", "here"), [("gemini", "google"), ("claude", "anthropic"), ("openia", "openai")]
)
def test_a_provider_under_another_name_is_recognised(called, here):
    for look in (RemoteModel, lambda name: check_model(name, "model")):
        with pytest.raises(ConfigError, match=rf"Did you mean {here}"):
            look(f"{called}:m")


def test_a_local_file_is_no_remote_model_and_says_how_it_is_named():
    with pytest.raises(ConfigError) as caught:
        RemoteModel("local:smollm2")
    assert "'local:smollm2' to Agent" in caught.value.fix
    assert "open_model('smollm2')" in caught.value.fix


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match=r"RemoteModel\.name"):
        RemoteModel(7)


def test_a_small_window_leaves_half_of_it_for_the_reply():
    assert RemoteModel("compatible:m", base_url="http://127.0.0.1:9/v1").max_output == 8_192
    small = RemoteModel("compatible:m", base_url="http://127.0.0.1:9/v1", window=4_096)
    assert small.max_output == 2_048


@pytest.mark.parametrize("window", [1, 10, 511])
def test_a_window_that_can_hold_no_request_is_refused(window):
    with pytest.raises(
        ConfigError, match=r"window: .* is too small for any request.* 512 at least"
    ):
        RemoteModel("compatible:m", base_url="http://127.0.0.1:9/v1", window=window)
    RemoteModel("compatible:m", base_url="http://127.0.0.1:9/v1", window=512)
