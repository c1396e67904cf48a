"""What must not stand on a tape, in whatever form it comes; and replay matches all the same."""

import asyncio
import base64
import json
import re
import string
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cairn import Agent, Blob, ConfigError, ErrorClass, ModelError, Policy, Runtime, Scripted, tool
from cairn.core.messages import CallPart, Message, Reasoning, ResultPart, Text, Uri, user
from cairn.models.cassette import Cassette
from cairn.models.cassette.redaction import Redactor
from cairn.ports import ModelReply, ModelRequest, ReplyCall, ToolSchema

SECRET = "Zq7-hunter/2+pass=word"

SHAPED = [
    "sk-abcdefghijklmnopqrstuvwx",
    "sk-proj-Ab1_Cd2-Ef3Gh4Ij5Kl6Mn7",
    "sk-ant-api03-Ab1_Cd2-Ef3Gh4Ij5Kl6Mn7",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-1234567890-abcdefghij",
    "hf_abcdefghijklmnopqrstuvwx",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]
HARMLESS = [
    "ask-me-anything-about-this-long-thing",
    "Bearer authentication is used",
    "the task-force-of-the-long-name",
    "a sk-short one, ghp_short, AKIA and eyJ.eyJ.x",
    "c29tZSBoYXJtbGVzcyBiYXNlNjQgdGV4dCBvZiBzb21lIGxlbmd0aA==",
    "3f786850e387550fdab836ed7e6dc881de23001b3f786850e387550fdab836ed",
    "«guillemets» are «KEYS» to French",
]


def forms(secret: str, before: str = "", after: str = "") -> list[str]:
    """The secret, plain and encoded, alone and with something around it."""
    raw, held = secret.encode(), (before + secret + after).encode()
    return [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(json.dumps(secret))[1:-1],
        quote(secret, safe=""),
        re.sub("%..", lambda m: m[0].lower(), quote(secret, safe="")),
        quote_plus(secret),
        raw.hex(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        base64.b64encode(held).decode(),
    ]


def cores(secret: str) -> set[bytes]:
    """What no file may hold: base64 of the secret at each of its three alignments, and the rest."""
    raw = secret.encode()
    found = {raw, raw.hex().encode(), quote(secret, safe="").encode()}
    found.add(json.dumps(secret)[1:-1].encode())
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"x" * shift + raw)[4 if shift else 0 :][: len(raw) // 3 * 4 - 4])
    return found


def everywhere(text: str) -> tuple[ModelRequest, ModelReply, ModelError]:
    """A request, a reply and an error with this text wherever text can be."""
    request = ModelRequest(
        system=text,
        messages=[
            Message(role="user", parts=(Text(text), Uri(uri=text), Blob(
                mime_type=text, content=text.encode(), name=text
            ))),
            Message(role="assistant", parts=(
                Reasoning(content=text, opaque=text),
                Text(text, opaque=text),
                CallPart(id="c1", name="t", arguments=json.dumps({"a": [text], text: 1})),
            )),
            Message(role="tool", parts=(ResultPart(id="c1", result=f'{{"out": "{text}"}}'),)),
        ],
        tools=(ToolSchema(name="t", description=text, parameters={"enum": [text], text: 1}),),
        output_mode="schema",
        output_schema={"title": text},
        run=text,
    )  # fmt: skip
    reply = ModelReply(
        parts=(
            Text(text, opaque=text),
            Reasoning(content=text, opaque=text),
            Blob(mime_type=text, content=b"x" + text.encode()),
        ),
        calls=(ReplyCall(name=text, arguments=json.dumps({"a": text}), id=text, opaque=text),),
        finish=text,
        request_id=text,
        model=text,
    )
    return request, reply, ModelError(ErrorClass.AUTH, text, request_id=text)


def recorded(folder: Path, text: str, **more: Any) -> Path:
    """A tape with this text everywhere, that answers when asked again; its error comes first."""
    path = folder / "tape.jsonl"
    path.unlink(missing_ok=True)
    request, reply, error = everywhere(text)
    model = Scripted([error, reply], name=f"a model {text}")

    async def go() -> None:
        tape = Cassette(path, model, mode="record", **more)
        for turn in range(2):
            asked = _turned(request, turn)
            try:
                await tape.request(asked, [].append)
            except ModelError:
                continue
        tape.eject()
        again = Cassette(path, **more)
        with pytest.raises(ModelError) as caught:
            await again.request(_turned(request, 0))
        assert caught.value.error_class is ErrorClass.AUTH
        came = await again.request(_turned(request, 1))
        assert (await again.request(_turned(everywhere(text)[0], 1))) == came
        assert not again.unused()

    asyncio.run(go())
    return path


def _turned(request: ModelRequest, turn: int) -> ModelRequest:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return ModelRequest(**{**fields, "turn": turn, "attempt": turn + 1})


@pytest.fixture(autouse=True)
def _no_mode_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_CASSETTE", raising=False)


secrets = st.text(
    string.ascii_letters + string.digits + "+/=-_.~!@#$%&*\"'\\ é€", min_size=8
).filter(
    # at both ends and in the middle something that neither the file nor a placeholder holds
    lambda s: len(s.strip()) >= 8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    secret=secrets.map(lambda s: f"Q7{s}X9"),
    before=st.text(max_size=4),
    after=st.text(max_size=4),
    pick=st.integers(0, 9),
)
@example(secret='Q7"quo\\ted"é€X9', before="a", after="b", pick=2)
@example(secret="Q7«SHOP_KEY»X9", before="", after="", pick=0)
def test_a_planted_secret_is_nowhere_on_the_tape_in_no_form(
    tmp_path_factory: pytest.TempPathFactory, secret: str, before: str, after: str, pick: int
) -> None:
    text = before + forms(secret, before, after)[pick] + after
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_API_KEY", secret)
        patch.delenv("CAIRN_CASSETTE", raising=False)
        path = recorded(tmp_path_factory.mktemp("tape"), text)
    data = path.read_bytes()
    for core in cores(secret):
        assert core not in data
    assert "«SHOP_API_KEY»".encode() in data


@pytest.mark.parametrize("shaped", SHAPED, ids=lambda s: s[:10].strip("-"))
@pytest.mark.parametrize("form", ["{}", "key={},", "Authorization: Bearer {}", "«{}»", "base64"])
def test_what_looks_like_a_key_is_not_kept_though_nobody_named_it(
    tmp_path: Path, shaped: str, form: str
) -> None:
    text = form.format(shaped)
    if form == "base64":
        text = base64.b64encode(f"user:{shaped}".encode()).decode()
    data = recorded(tmp_path, text).read_bytes()
    assert json.dumps(shaped)[1:-1].encode() not in data
    assert base64.b64encode(shaped.encode())[:20] not in data
    assert text.encode() not in data


@pytest.mark.parametrize(
    "text",
    ["Bearer Zm9vYmFyYmF6cXV4MTIz", "bearer%20Zm9vYmFyYmF6cXV4MTIz", "Bearer a.b~c+d/e-f_0123="],
)
def test_a_bearer_token_of_any_kind_is_not_kept(tmp_path: Path, text: str) -> None:
    told = Redactor({}).text(f"Authorization: {text}\nAccept: all")
    assert re.fullmatch(r"Authorization: [Bb]earer(?: |%20)«TOKEN»\nAccept: all", told)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_key_stays_readable(text: str) -> None:
    assert Redactor({"SHOP_KEY": SECRET, "SHORT_KEY": "seven77"}).text(text) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.sampled_from([SECRET, "«SHOP_KEY»", "«", "»", "Bearer ", *SHAPED, *HARMLESS])
        | st.text(max_size=5),
        max_size=6,
    )
)
def test_redacting_twice_changes_nothing(parts: list[str]) -> None:
    redactor = Redactor({"SHOP_KEY": SECRET}, ["order", re.compile(r"\d{3,}"), re.compile("(?=a)")])
    once = redactor.text("".join(parts))
    assert redactor.text(once) == once
    arguments = json.dumps({"a": "".join(parts), "n": 12345})
    hidden = redactor.arguments(arguments)
    assert redactor.arguments(hidden) == hidden
    assert isinstance(json.loads(hidden), dict)


def test_an_argument_that_is_a_secret_number_is_still_json() -> None:
    redactor = Redactor({"DOOR_PASSWORD": "4815162342"})
    assert redactor.arguments('{"code": 4815162342}') == '{"code": "«DOOR_PASSWORD»"}'
    assert redactor.arguments('{"a":   1}') == '{"a":   1}'
    assert redactor.arguments('{"code": "\\u0034815162342"}') == '{"code": "«DOOR_PASSWORD»"}'
    twice = '{"code": "sk-abcdefghijklmnopqrstuvwx", "code": "x"}'
    assert redactor.arguments(twice) == '{"code": "«KEY»", "code": "x"}'
    assert redactor.arguments("{broken 4815162342") == "{broken «DOOR_PASSWORD»"


def test_the_longest_of_overlapping_secrets_is_replaced_whole() -> None:
    redactor = Redactor({"A_KEY": "longsecret", "B_KEY": "longsecret-and-more"})
    assert redactor.text("x longsecret-and-more y longsecret") == "x «B_KEY» y «A_KEY»"


def test_secrets_whose_values_are_each_others_names_come_to_an_end() -> None:
    redactor = Redactor({"FIRST_KEY": "SECOND_KEY", "SECOND_KEY": "FIRST_KEY"})
    assert "«" in redactor.text("SECOND_KEY")


@pytest.mark.parametrize("bad", ["", re.compile("x*"), re.compile(b"x"), 7, "«KEY»"], ids=repr)
def test_what_cannot_be_looked_for_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"^redact: "):
        Redactor({}, [bad])


def test_one_tape_is_recorded_with_one_redact(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    with (
        Cassette(path, Scripted(["x"]), mode="record", redact=["a"]),
        pytest.raises(ConfigError, match="recorded with another one"),
    ):
        Cassette(path, Scripted(["x"]), mode="record")


def test_what_changes_from_day_to_day_is_matched_once_it_is_redacted(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    day = re.compile(r"\d{4}-\d\d-\d\d")

    def asking(date: str) -> ModelRequest:
        return ModelRequest(system=f"Today is {date}.", messages=[user("hi")])

    with Cassette(path, Scripted(["hello"]), mode="record") as tape:
        asyncio.run(tape.request(asking("2026-01-02")))
    with pytest.raises(ModelError, match="2026-09-09"):
        asyncio.run(Cassette(path).request(asking("2026-09-09")))
    reply = asyncio.run(Cassette(path, redact=[day]).request(asking("2026-09-09")))
    assert reply.parts == (Text("hello"),)


def test_a_secret_that_is_not_known_where_it_is_replayed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tape.jsonl"
    request = ModelRequest(system="", messages=[user("Use postgres-1")])
    monkeypatch.setenv("DB_PASSWORD", "postgres-1")
    with Cassette(path, Scripted(["x"]), mode="record") as tape:
        asyncio.run(tape.request(request))
    assert "postgres-1" not in path.read_text(encoding="utf-8")
    monkeypatch.delenv("DB_PASSWORD")
    with pytest.raises(ModelError, match="DB_PASSWORD was set where this was recorded"):
        asyncio.run(Cassette(path).request(request))
    monkeypatch.setenv("DB_PASSWORD", "postgres-1")
    assert asyncio.run(Cassette(path).request(request)).parts == (Text("x"),)


def test_a_run_that_handles_a_secret_replays_to_the_end_with_the_placeholder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tape.jsonl"
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    got = []

    @tool(effect="write")
    def login(token: str) -> str:
        """Log in."""
        got.append(token)
        return f"logged in with {token}"

    def run(model: Cassette) -> str:
        allow = Policy(effects={"write": "allow"})
        with Runtime(":memory:", [Agent("a", model, tools=[login])], policy=allow) as rt:
            return rt.run("a", f"Log in with {SECRET}").text

    script = [[ReplyCall(name="login", arguments=f'{{"token": "{SECRET}"}}')], f"It was {SECRET}"]
    with Cassette(path, Scripted(script), mode="record") as tape:
        assert run(tape) == f"It was {SECRET}"
    assert run(Cassette(path)) == "It was «SHOP_TOKEN»"
    assert got == [SECRET, "«SHOP_TOKEN»"]
    assert SECRET not in path.read_text(encoding="utf-8")
