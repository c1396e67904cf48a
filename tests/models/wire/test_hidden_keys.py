"""A provider that repeats the key puts it nowhere: not into a fault, and not behind one."""

import json
import traceback

import pytest
from tests.models.wire.bodies import text
from tests.models.wire.kit import every_format, fault, reply, streamed_or_whole
from tests.models.wire.server import SSE, Answer

KEY = "Zq7-canary.8fJx2LmPw04tVb"
PIECES = ("Zq7", "canary", "8fJ", "2LmP", "4tVb")
SAID = (
    f"Incorrect API key provided: {KEY}, as {KEY[:12]}*****{KEY[-4:]} and {KEY[:9]}…, "
    f"at https://host/v1?key={KEY}"
)


def refusal(form, status=401):
    """How each provider says it, with the key in all places where one might be."""
    bodies = {
        "messages": {"type": "error", "error": {"type": "authentication_error", "message": SAID}},
        "gemini": {"error": {"code": status, "message": SAID, "status": "UNAUTHENTICATED"}},
    }
    usual = {"error": {"message": SAID, "type": "invalid_request_error", "code": "invalid_api_key"}}
    body = json.dumps(bodies.get(repr(form), usual)).encode()
    return Answer(body, status=status, headers={form.request_id: f"req-{KEY}-1"})


def shown(error):
    """All that anybody could print of it."""
    told = "".join(traceback.format_exception(error))
    return f"{error!r} {error} {error.request_id} {told}"


@every_format
@streamed_or_whole
@pytest.mark.parametrize("status", [401, 500])
def test_a_refused_key_is_in_no_part_of_the_fault(form, stream, status):
    found = fault(form, refusal(form, status), key=KEY, stream=stream)
    assert "Incorrect API key provided" in str(found)
    for piece in PIECES:
        assert piece not in shown(found)


@every_format
@pytest.mark.parametrize(
    "answer",
    [
        Answer(SAID.encode(), status=401, kind="text/plain"),
        Answer(f"<title>{KEY}</title>".encode(), status=502, kind="text/html"),
        Answer(f"no JSON {KEY}".encode(), kind="application/json"),
        Answer(events=[f"data: no JSON {KEY}\n\n".encode()], kind=SSE),
    ],
    ids=["text", "page", "no JSON", "stream"],
)
def test_a_body_in_no_format_is_looked_through_as_well(form, answer):
    found = fault(form, answer, key=KEY)
    for piece in PIECES:
        assert piece not in shown(found)


@every_format
def test_a_fault_without_a_key_keeps_what_is_behind_it(form):
    assert fault(form, Answer(b"{}", status=503), key=KEY).__cause__ is not None


@every_format
@streamed_or_whole
def test_the_request_id_of_a_success_holds_no_key(form, stream):
    answer = form.answer(text(), stream=stream, headers={form.request_id: f"req-{KEY}"})
    found = reply(form, answer, key=KEY, stream=stream)
    assert found.request_id.startswith("req-")
    assert "canary" not in found.request_id
