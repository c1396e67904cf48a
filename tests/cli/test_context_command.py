"""What a request held, for people and for programs: `cairn context show`, `trace --context`."""

import pytest


@pytest.mark.parametrize(
    "command", [("context", "show", "r", "1"), ("trace", "r", "--context", "1")]
)
def test_a_manifest_as_json_is_one_whole_line(cairn, command):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn(*command, "--json")
    assert said.out.endswith("}\n")
    (held,) = said.objects
    assert held["step"] == 1
    assert "before" not in held, "there is none"


def test_the_first_request_of_a_run_is_compared_with_none(cairn):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn("context", "show", "r", "1")
    assert "100" not in said.out
    assert "no request before it" in " ".join(said.out.split())


@pytest.mark.parametrize("option", ["--at", "--step"])
def test_what_a_request_held_cannot_be_asked_for_together_with_another_view(cairn, option):
    assert cairn("run", "quick", "hello", "--id", "r").code == 0
    said = cairn("trace", "r", "--context", "1", option, "1")
    assert said.code != 0
    assert f"{option}: it cannot be used together with --context" in " ".join(said.err.split())
