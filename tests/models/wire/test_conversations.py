"""What a model said before goes back to it: ids, arguments, thinking, order and files."""

import json

import msgspec
import pytest
from tests.models.wire.bodies import CHAT, FORMATS, GEMINI, MESSAGES, RESPONSES, Said, call, text
from tests.models.wire.kit import asked, every_format, hear, reply, streamed_or_whole
from tests.models.wire.server import Answer

from cairn.core.messages import (
    Blob,
    CallPart,
    Message,
    ResultPart,
    Text,
    Uri,
    parse_object,
    sendable,
    user,
)
from cairn.core.outcomes import _merged
from cairn.errors import ErrorClass
from cairn.ports import ReplyCall

ODD = '{ "q" :  1.0, "q": "é" }'


def taken_in(found):
    """A reply as the core takes it into a conversation, with ids of the runtime's own."""
    numbered = enumerate(found.calls, 1)
    calls = [
        CallPart(
            id=f"c{n}", name=each.name, arguments=each.arguments, alias=each.id, opaque=each.opaque
        )
        for n, each in numbered
    ]
    parts = sendable(_merged(list(found.parts), found.calls, calls))
    results = tuple(ResultPart(id=each.id, result=f"result of {each.id}") for each in calls)
    said = Message(role="assistant", parts=parts)
    told = (Message(role="tool", parts=results),) if results else (user("Go on."),)
    return (user("Look for tea."), said, *told)


def sent(form, messages, **more):
    """What is sent for a conversation."""
    heard = hear(form, form.answer(text(), stream=True), asked(messages=messages), **more)
    assert heard.fault is None
    return heard.sent


def turns(form, body):
    """The messages, items or contents of a request, system prompt left out."""
    if form is CHAT:
        return [m for m in body["messages"] if m["role"] != "system"]
    return body["input" if form is RESPONSES else "messages" if form is MESSAGES else "contents"]


def called(form, body):
    """Calls and results of a request, as (id, arguments) and id to result."""
    calls, results = [], {}
    for turn in turns(form, body):
        if form is CHAT:
            calls += [(c["id"], c["function"]["arguments"]) for c in turn.get("tool_calls", ())]
            if turn["role"] == "tool":
                results[turn["tool_call_id"]] = turn["content"]
        elif form is RESPONSES:
            if turn.get("type") == "function_call":
                calls.append((turn["call_id"], turn["arguments"]))
            elif turn.get("type") == "function_call_output":
                results[turn["call_id"]] = turn["output"]
        elif form is MESSAGES:
            for block in turn["content"]:
                if block["type"] == "tool_use":
                    calls.append((block["id"], json.dumps(block["input"])))
                elif block["type"] == "tool_result":
                    results[block["tool_use_id"]] = block["content"][0]["text"]
        else:
            for part in turn["parts"]:
                if "functionCall" in part:
                    one = part["functionCall"]
                    calls.append((one["id"], json.dumps(one["args"])))
                elif "functionResponse" in part:
                    one = part["functionResponse"]
                    results[one["id"]] = one["response"]["return_value"]
    return calls, results


@every_format
@streamed_or_whole
def test_every_call_has_an_id_of_its_own_although_the_provider_repeats_its_ids(form, stream):
    """B17."""
    said = Said(parts=(call('{"q": "a"}', id="x"), call('{"q": "b"}', id="x")))
    messages = taken_in(reply(form, form.answer(said, stream=stream), stream=stream))
    calls, results = called(form, sent(form, messages))
    assert [own for own, _ in calls] == ["c1", "c2"]
    assert [parse_object(given) for _, given in calls] == [{"q": "a"}, {"q": "b"}]
    assert results == {"c1": "result of c1", "c2": "result of c2"}


@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=repr)
def test_old_arguments_go_back_byte_for_byte(form):
    messages = taken_in(reply(form, form.answer(Said(parts=(call(ODD),)), stream=True)))
    calls, _ = called(form, sent(form, messages))
    assert calls == [("c1", ODD)]


@every_format
@pytest.mark.parametrize("broken", ['{"q": "te', "[1]", "null", "", "tea", '{"q": "\\ud83d"}'])
def test_an_old_call_that_nobody_can_read_is_sendable_to_every_provider(form, broken):
    """B21, B57: it is carried in a safe form, half an emoji in it too."""
    given = CallPart(id="c1", name="find", arguments=broken)
    said = Message(role="assistant", parts=sendable((given,)))
    told = Message(role="tool", parts=(ResultPart(id="c1", result="not JSON", ok=False),))
    calls, results = called(form, sent(form, (user("Hi."), said, told, user("Again."))))
    assert [type(json.loads(words)) for _, words in calls] == [dict]
    assert results == {"c1": "not JSON"}


@every_format
def test_what_a_tool_said_is_sent_word_for_word_whether_it_failed_or_not(form):
    words = '  {"a": 1.0}\nzwölf \u2028 🫖 '
    for ok in (True, False):
        said = Message(role="assistant", parts=(CallPart(id="c1", name="find"),))
        told = Message(role="tool", parts=(ResultPart(id="c1", result=words, ok=ok),))
        body = sent(form, (user("Hi."), said, told))
        assert called(form, body)[1] == {"c1": words}
        if form is MESSAGES:
            (block,) = turns(form, body)[-1]["content"]
            assert block["is_error"] is not ok


# ---------------------------------------------------------------- thinking and its marks

THOUGHT = Said(parts=(("thought", "I weigh it.", "bWFyaw=="), ("text", "I look."), call(ODD)))


@pytest.mark.parametrize("form", [RESPONSES, MESSAGES], ids=repr)
@streamed_or_whole
def test_thinking_goes_back_to_its_provider_with_its_mark_and_in_its_place(form, stream):
    messages = taken_in(reply(form, form.answer(THOUGHT, stream=stream), stream=stream))
    body = sent(form, messages)
    if form is MESSAGES:
        kinds = [block["type"] for block in turns(form, body)[1]["content"]]
        assert kinds == ["thinking", "text", "tool_use"]
        thought = turns(form, body)[1]["content"][0]
        assert (thought["thinking"], thought["signature"]) == ("I weigh it.", "bWFyaw==")
        return
    items = turns(form, body)
    kinds = [item.get("type", "message") for item in items[1:]]
    assert kinds == ["reasoning", "message", "function_call", "function_call_output"]
    assert items[1]["encrypted_content"] == "bWFyaw=="
    assert items[1]["summary"] == [{"type": "summary_text", "text": "I weigh it."}]
    assert items[1]["id"] == "rs_0"


def test_hidden_reasoning_goes_back_although_it_has_no_words():
    said = Said(parts=(("thought", "", "ZW5j"), ("text", "Tea.")))
    messages = taken_in(reply(RESPONSES, RESPONSES.answer(said, stream=True)))
    (thought,) = [i for i in turns(RESPONSES, sent(RESPONSES, messages)) if "summary" in i]
    assert thought["encrypted_content"] == "ZW5j"


@streamed_or_whole
def test_a_thought_signature_goes_back_with_its_google_call(stream):
    parts = (("call", "find", '{"q": 1}', "a", "c2lnbg=="), call('{"q": 2}', id="b"))
    found = reply(GEMINI, GEMINI.answer(Said(parts=parts), stream=stream), stream=stream)
    turn = turns(GEMINI, sent(GEMINI, taken_in(found)))[1]
    assert turn["parts"][0]["thoughtSignature"] == "c2lnbg=="
    assert turn["parts"][0]["functionCall"]["args"] == {"q": 1}
    assert turn["parts"][1].get("thoughtSignature") != "c2lnbg=="


@streamed_or_whole
def test_a_reasoning_field_goes_back_under_the_name_it_came_with(stream):
    said = Said(parts=(("thought", "I weigh it.", ""), call()))
    found = reply(
        CHAT, CHAT.answer(said, stream=stream), stream=stream, provider="vllm", model="a-model"
    )
    body = sent(CHAT, taken_in(found), provider="vllm", model="a-model")
    assert turns(CHAT, body)[1]["reasoning_content"] == "I weigh it."


@pytest.mark.parametrize("second", FORMATS, ids=repr)
@pytest.mark.parametrize("first", FORMATS, ids=repr)
def test_another_provider_gets_the_words_and_calls_and_none_of_the_marks(first, second):
    if first is second:
        return
    messages = taken_in(reply(first, first.answer(THOUGHT, stream=True)))
    body = sent(second, messages)
    raw = json.dumps(body)
    for foreign in ("bWFyaw==", "I weigh it.", "rs_0", "msg_1", "fc_2", "id_1"):
        assert foreign not in raw
    assert "I look." in raw
    calls, results = called(second, body)
    assert [own for own, _ in calls] == ["c1"]
    assert results == {"c1": "result of c1"}


def test_the_marks_are_still_there_on_the_way_back_from_another_provider():
    messages = taken_in(reply(MESSAGES, MESSAGES.answer(THOUGHT, stream=True)))
    sent(CHAT, messages)
    later = reply(CHAT, CHAT.answer(text("Found."), stream=True), asked(messages=messages))
    later = (*messages, Message(role="assistant", parts=later.parts), user("Thanks."))
    body = sent(MESSAGES, later)
    assert turns(MESSAGES, body)[1]["content"][0]["signature"] == "bWFyaw=="
    assert turns(MESSAGES, body)[3]["content"] == [{"type": "text", "text": "Found."}]


@pytest.mark.parametrize("opaque", ["no JSON", "[]", '{"provider": 7}', '{"provider":"anthropic"}'])
def test_a_mark_that_cannot_be_read_is_left_out(opaque):
    said = Message(role="assistant", parts=(Text("Tea.", opaque=opaque),))
    body = sent(MESSAGES, (user("Hi."), said, user("More.")))
    assert turns(MESSAGES, body)[1]["content"] == [{"type": "text", "text": "Tea."}]


def test_a_call_without_a_place_stands_after_the_words():
    calls = (ReplyCall(name="find"),)
    merged = _merged([Text("I look.")], calls, [CallPart(id="c1", name="find")])
    assert [type(part) for part in merged] == [Text, CallPart]


# ---------------------------------------------------------------- files

PNG = Blob(mime_type="image/png", content=b"\x89PNG", name="a.png")
PDF = Blob(mime_type="application/pdf", content=b"%PDF-1.4", name="a.pdf")
NOTE = Blob(mime_type="text/markdown", content="Zwölf Tees".encode(), name="note.md")


def shown(form, *parts):
    """The last turn of a request with these parts, as text; or the fault."""
    message = Message(role="user", parts=(Text("Look."), *parts))
    heard = hear(form, form.answer(text(), stream=True), asked(messages=(message,), tools=()))
    if heard.fault is not None:
        assert heard.seen == []
        assert heard.fault.error_class == ErrorClass.INVALID_REQUEST
        return str(heard.fault)
    return json.dumps(turns(form, heard.sent)[-1], ensure_ascii=False)


@every_format
def test_images_and_documents_are_sent_as_what_they_are(form):
    found = shown(form, PNG, PDF)
    assert "iVBORw==" in found
    assert "image/png" in found
    assert "JVBERi0xLjQ=" in found
    assert "application/pdf" in found


@every_format
def test_a_text_file_is_sent_as_text_with_its_name(form):
    assert r"File note.md (text/markdown):\nZwölf Tees" in shown(form, NOTE)
    assert "no UTF-8" in shown(form, msgspec.structs.replace(NOTE, content=b"\xff"))


UNNAMED = "application/octet-stream"
TEXTS = [
    ("server.log", UNNAMED),
    ("Dockerfile", UNNAMED),
    ("a.yaml", "application/yaml"),
    ("a.toml", "application/toml"),
    ("logo.svg", "image/svg+xml"),
    ("app.ts", "video/mp2t"),
]


@every_format
@pytest.mark.parametrize(("name", "kind"), TEXTS)
def test_a_file_that_is_text_is_sent_as_text_whatever_its_ending(form, name, kind):
    file = Blob(mime_type=kind, content="Grüße\n".encode(), name=name)
    assert rf"File {name} ({kind}):\nGrüße" in shown(form, file)


@every_format
def test_a_file_without_a_known_ending_that_is_no_text_is_not_sent_as_text(form):
    found = shown(form, Blob(mime_type=UNNAMED, content=b"ab\0c", name="core"))
    assert "File core" not in found


@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=repr)
def test_a_document_keeps_its_name_where_the_format_has_a_place_for_it(form):
    nameless = msgspec.structs.replace(PDF, name="")
    found = shown(form, PNG, PDF, nameless, msgspec.structs.replace(PDF, name="b.pdf"))
    assert found.count('"filename": "a.pdf"') == found.count('"filename": "b.pdf"') == 1
    assert found.count('"filename": ') == 3


def test_a_text_in_another_encoding_says_that_it_must_be_converted():
    assert "convert it to UTF-8" in shown(CHAT, msgspec.structs.replace(NOTE, content=b"\xff"))


@every_format
def test_the_ending_of_an_address_says_what_stands_there(form):
    pdf = shown(form, Uri(uri="https://files.invalid/a.pdf?v=1"))
    assert ("does not fetch" in pdf) is (form in {CHAT, GEMINI})
    assert '"image' not in pdf
    unknown = shown(form, Uri(uri="https://files.invalid/a"))
    assert ("does not fetch" in unknown) is (form is GEMINI)


@every_format
@pytest.mark.parametrize("kind", ["application/zip", "audio/wav", "audio/ogg", "video/mp4"])
def test_a_file_the_format_has_no_place_for_is_a_typed_fault(form, kind):
    found = shown(form, Blob(mime_type=kind, content=b"RIFF"))
    assert "UklGRg==" in found or f"takes no file of the kind {kind}" in found


ADDRESSES = ["image/png", "", "application/pdf", "text/plain", "audio/mpeg", "video/mp4"]


@every_format
@pytest.mark.parametrize("kind", ADDRESSES)
def test_an_address_is_handed_on_and_never_fetched_from_here(form, kind):
    address = "https://files.invalid/thing"
    found = shown(form, Uri(uri=address, mime_type=kind))
    assert address in found
    if form is GEMINI:
        assert "does not fetch" in found
    elif kind in {"image/png", ""}:
        assert "does not fetch" not in found


def test_google_reads_its_own_files_by_their_address():
    address = "https://generativelanguage.googleapis.com/v1beta/files/abc"
    found = shown(GEMINI, Uri(uri=address, mime_type="application/pdf"))
    assert address in found
    assert "does not fetch" not in found


def test_a_picture_the_model_drew_is_a_part_of_the_reply():
    body = GEMINI.whole(text("Here."))
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    body["candidates"][0]["content"]["parts"].append(inline)
    found = reply(GEMINI, Answer(body=json.dumps(body).encode()), stream=False)
    assert found.parts[1] == Blob(mime_type="image/png", content=b"\x89PNG")
