"""`cairn memory`: looking and deciding from the command line, with the store alone."""

import asyncio
import json
import sys

import pytest
from tests.memory.kit import ANN, NOW, fact
from typer.testing import CliRunner

from cairn import Runtime
from cairn.cli import memory_command
from cairn.cli.entry import app
from cairn.store import open_store


class Said:
    """What a command printed and how it ended."""

    def __init__(self, result):
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def objects(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cairn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CAIRN_APP", "CAIRN_STORE", "CAIRN_SECRETS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words, input=None):
        result = CliRunner().invoke(app, ["memory", *words], input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result)

    return run


def with_memory(work):
    async def whole():
        store = open_store("cairn.db")
        try:
            return await work(store.memory(), store)
        finally:
            await store.close()

    return asyncio.run(whole())


@pytest.fixture
def store(cairn):
    async def fill(memory, _):
        await memory.keep(fact("Likes green tea.", run="r", call="c1"), "", NOW)
        waits = fact("Pays by card.", trust="untrusted", taint=("web",), waits=True)
        await memory.keep(waits, "", NOW)

    with_memory(fill)


@pytest.mark.usefixtures("store")
def test_facts_are_listed_searched_and_shown(cairn):
    said = cairn("list")
    assert said.code == 0
    assert "m1  Likes green tea." in said.out
    assert "m2  Pays by card." in said.out
    assert "waits for a review" in said.out
    assert [each["id"] for each in cairn("list", "--state", "live", "--json").objects] == ["m1"]
    assert cairn("list", "--principal", "bob").out == ""
    assert cairn("search", "tea", "--principal", "ann").out.startswith("m1  Likes green tea.")
    assert cairn("search", "tea").out == ""
    assert cairn("search", "card", "--principal", "ann").out == ""
    shown = cairn("show", "m1").out
    for line in ("run: r", "call: c1", "trust: agent", "principal: ann"):
        assert line in shown


@pytest.mark.usefixtures("store")
def test_what_waits_is_reviewed_and_the_store_says_by_whom(cairn):
    assert cairn("review").out.startswith("m2  Pays by card.")
    assert cairn("review", "m2").code == 2
    assert cairn("review", "--accept").code == 2
    assert cairn("review", "m2", "--accept", "--trust", "much").code == 2
    said = cairn("review", "m2", "--accept", "--as", "ada", "-m", "asked her")
    assert (said.code, said.out) == (0, "m2 is accepted\n")
    assert cairn("review").out == ""
    assert cairn("search", "card", "--principal", "ann", "--json").objects[0]["trust"] == "owner"
    assert cairn("review", "m1", "--reject", "--as", "ada").code == 0
    assert "m1 was rejected by ada" in cairn("show", "m1").out

    async def events(_, store):
        return await store.read("store")

    reviewed = [e for e in with_memory(events) if e.event.NAME == "memory.reviewed"]
    assert [(e.actor, e.event.reason) for e in reviewed] == [("ada", "asked her"), ("ada", "")]


@pytest.mark.usefixtures("store")
def test_accepting_what_is_remembered_in_the_same_words_says_which_fact_it_confirms(cairn):
    async def twice(memory, _):
        await memory.keep(fact("Pays by card.", trust="agent"), "", NOW)

    with_memory(twice)
    said = cairn("review", "m2", "--accept", "--trust", "agent")
    assert said.out == "m2 is accepted: it says what m3 says, which is confirmed\n"
    assert "replaced by m3" in cairn("list").out
    (line,) = [e for e in cairn("list", "--state", "live", "--json").objects if "card" in e["text"]]
    assert (line["id"], line["trust"]) == ("m3", "agent")


@pytest.mark.usefixtures("store")
def test_of_facts_that_replace_one_another_each_is_accepted_and_what_became_of_the_rest_is_said(
    cairn,
):
    async def both(memory, _):
        waits = {"trust": "untrusted", "taint": ("web",), "waits": True}
        await memory.keep(fact("Likes black tea.", supersedes=1, **waits), "", NOW)

    with_memory(both)
    said = cairn("review", "m3", "m1", "m2", "--accept")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "m3 is accepted",
        "m1 is kept as history: m3 has taken its place",
        "m2 is accepted",
    ]
    assert [line["state"] for line in cairn("list", "--json").objects] == [
        *("superseded", "live", "live")
    ]


@pytest.mark.usefixtures("store")
def test_what_another_has_decided_meanwhile_holds_none_of_the_rest_up(cairn, monkeypatch):
    checked = memory_command.check_reviewable

    async def meanwhile(found, *given, **more):
        await checked(found, *given, **more)
        await found.forget(1, NOW, actor="else")

    monkeypatch.setattr(memory_command, "check_reviewable", meanwhile)
    said = cairn("review", "m1", "m2", "--accept", "--json")
    assert (said.code, "m1 was forgotten" in said.err) == (1, True)
    assert [(line["did"], line["id"]) for line in said.objects] == [("accepted", "m2")]


@pytest.mark.usefixtures("store")
def test_a_list_of_what_counts_is_the_same_on_the_command_line_and_in_code(cairn):
    async def late(memory, _):
        await memory.keep(fact("Pays in gold.", expires_at=NOW + 1), "", NOW)

    with_memory(late)
    assert [(f["id"], f["state"]) for f in cairn("list", "--json").objects] == [
        *(("m1", "live"), ("m2", "waiting"), ("m3", "expired"))
    ]
    assert [f["id"] for f in cairn("list", "--state", "live", "--json").objects] == ["m1"]
    assert [f["id"] for f in cairn("list", "--state", "expired", "--json").objects] == ["m3"]
    assert cairn("show", "m3", "--json").objects[0]["state"] == "expired"
    assert "    state: expired\n" in cairn("show", "m3").out
    with Runtime("cairn.db") as rt:
        assert [each.state for each in rt.facts()] == ["live", "waiting", "expired"]


@pytest.mark.usefixtures("store")
def test_what_has_expired_is_not_accepted_and_nothing_else_is_done_then(cairn):
    async def late(memory, _):
        waits = {"trust": "untrusted", "taint": ("web",), "waits": True}
        await memory.keep(fact("Pays in gold.", expires_at=NOW + 1, **waits), "", NOW)

    with_memory(late)
    said = cairn("review", "m2", "m3", "--accept")
    assert (said.code, "m3 has expired" in said.err) == (1, True)
    assert [each["id"] for each in cairn("list", "--state", "waiting", "--json").objects] == [
        *("m2", "m3")
    ]
    assert cairn("review", "m3", "--reject").code == 0


@pytest.mark.usefixtures("store")
def test_what_a_rejected_fact_had_replaced_is_found_again(cairn):
    cairn("add", "Likes black tea.", "--principal", "ann", "--supersedes", "m1")
    assert cairn("review", "m3", "--reject").code == 0
    assert cairn("search", "tea", "--principal", "ann").out.startswith("m1  Likes green tea.")
    assert cairn("list").out.count("replaced by") == 0


@pytest.mark.usefixtures("store")
def test_a_person_adds_replaces_and_forgets(cairn):
    said = cairn("add", "Likes black tea.", "--principal", "ann", "--supersedes", "m1", "--as", "x")
    assert said.out == "m3 is remembered\n"
    assert cairn("search", "tea", "--principal", "ann").out.startswith("m3")
    assert cairn("add", "Ships on Monday.", "--project", "shop", "--within", "30d").code == 0
    assert cairn("search", "ships", "--project", "shop").out.startswith("m4")
    assert cairn("add", "x", "--project", "a", "--agent", "b").code == 2
    assert cairn("forget", "m3", "--as", "ann").out == "forgotten: m1, m3\n"
    assert cairn("show", "m1", "--json").objects[0]["gone"] == "forgotten"
    missing = cairn("forget", "m99")
    assert (missing.code, "there is no fact m99" in missing.err) == (2, True)
    assert cairn("forget", "seven").code == 2


@pytest.mark.usefixtures("store")
def test_of_several_facts_all_are_forgotten_or_none(cairn):
    cairn("add", "Likes black tea.", "--principal", "ann", "--supersedes", "m1")
    assert cairn("forget", "m2", "m99").code == 2
    assert "m2" in cairn("list").out
    assert cairn("review", "m2", "m1", "--accept").code == 1
    assert cairn("list", "--state", "waiting").out.startswith("m2")
    said = cairn("forget", "m3", "m1", "m2", "m2")
    assert (said.code, said.out) == (0, "forgotten: m1, m3\nforgotten: m2\n")


@pytest.mark.usefixtures("store")
def test_accepting_and_rejecting_at_once_is_refused_as_that(cairn):
    for named in ((), ("m2",)):
        said = cairn("review", *named, "--accept", "--reject")
        assert (said.code, "--accept is given as well. Give one" in said.err) == (2, True)


@pytest.mark.usefixtures("store")
def test_what_looks_like_a_key_is_refused_and_not_kept_as_a_marker(cairn):
    key = "ghp_" + "a9K2m4Qx7ZtB1vN8cL5pR3wY6sD0fG2hJ4kE"
    for words in ((f"tok {key}",), ("x", "--tag", key)):
        said = cairn("add", *words)
        assert (said.code, "looks like a key" in said.err, key in said.err) == (2, True, False)
    assert "m3" not in cairn("list").out


APP = """
from cairn import Agent, MemoryRules, Runtime, Scripted
rules = MemoryRules(project="shop", agents=("desk",))
rt = Runtime("cairn.db", [Agent("desk", Scripted(["done"]))], memory=rules)
"""


@pytest.mark.usefixtures("store")
def test_a_scope_that_the_application_does_not_share_is_refused(cairn, tmp_path, monkeypatch):
    (tmp_path / "sharing_desk.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def add(*words):
        monkeypatch.delitem(sys.modules, "sharing_desk", raising=False)
        return cairn("add", "x", *words, "--app", "sharing_desk:rt")

    for kind, name, shared in (("agent", "typo", "desk"), ("project", "typo", "shop")):
        said = add(f"--{kind}", name)
        assert said.code == 2
        assert f"shares no facts of the {kind} 'typo'. It shares those of {shared}" in said.err
        done = add(f"--{kind}", shared)
        assert (done.code, done.err) == (0, "")
    assert "typo" not in cairn("list").out


@pytest.mark.usefixtures("store")
def test_without_an_application_it_is_said_that_nobody_may_read_a_shared_fact(cairn):
    said = cairn("add", "x", "--agent", "desk")
    assert (said.code, "no application was named" in said.err) == (0, True)
    assert cairn("add", "y", "--principal", "ann").err == ""


@pytest.mark.usefixtures("store")
def test_erasing_asks_first_and_leaves_nothing(cairn, tmp_path):
    exported = cairn("export", "--principal", "ann").objects
    assert [each["id"] for each in exported] == ["m1", "m2"]
    said = cairn("erase", "--principal", "ann", input="n\n")
    assert (said.code, "nothing was erased" in said.err) == (1, True)
    assert len(cairn("export", "--principal", "ann").objects) == 2
    said = cairn("erase", "--principal", "ann", "--yes", "--as", "dpo", "-m", "asked to")
    assert said.code == 0
    assert "erased: 2 facts" in said.out
    assert cairn("export", "--principal", "ann").out == ""
    data = b"".join(file.read_bytes() for file in tmp_path.glob("cairn.db*") if file.is_file())
    assert b"green tea" not in data
    assert "m1 was erased by dpo" in cairn("show", "m1").out


@pytest.mark.usefixtures("store")
def test_what_acts_on_a_terminal_is_shown_and_does_not_act(cairn):
    async def add(memory, _):
        await memory.keep(fact("\x1b[2Jgone \u202eevil", ANN), "", NOW)

    with_memory(add)
    for said in (cairn("list"), cairn("show", "m3"), cairn("search", "evil", "--principal", "ann")):
        assert "\x1b" not in said.out
        assert "\u202e" not in said.out
        assert "evil" in said.out


def test_the_first_fact_makes_the_store_and_says_so(cairn, tmp_path):
    said = cairn("add", "Likes tea.", "--principal", "ann", "--store", "new.db", "--json")
    assert (said.code, said.objects[0]["id"]) == (0, "m1")
    assert "there was no store new.db: it was made" in said.err
    said = cairn("add", "Likes jam.", "--principal", "ann", "--store", "new.db")
    assert (said.out, said.err) == ("m2 is remembered\n", "")
    assert cairn("list", "--store", "new.db").out.count("Likes") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("",),
        ("x" * 5_000,),
        ("x", "--within", "0d"),
        ("x", "--tag", ""),
        ("x", "--supersedes", "m1"),
    ],
    ids=["empty", "long", "no time", "no tag", "nothing to replace"],
)
def test_a_fact_that_is_refused_makes_no_store(cairn, tmp_path, words):
    assert cairn("add", *words).code == 2
    assert list(tmp_path.iterdir()) == []


def test_without_a_store_nothing_is_made(cairn, tmp_path):
    said = cairn("list")
    assert (said.code, "there is no store" in said.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


MEANING = """
from cairn import Agent, MemoryRules, Runtime, Scripted
from cairn.testing.memory_promises import Meaning

meaning = Meaning()

def rt():
    rules = MemoryRules(embedder=meaning)
    return Runtime("cairn.db", [Agent("desk", Scripted(["done"]))], memory=rules)

def plain():
    return Runtime("cairn.db", [Agent("desk", Scripted(["done"]))])
"""


@pytest.fixture
def meaning(tmp_path, monkeypatch):
    """The embedder of an application, `meaning_desk:rt`, beside which there is one without."""
    (tmp_path / "meaning_desk.py").write_text(MEANING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "meaning_desk", raising=False)
    return lambda: sys.modules["meaning_desk"].meaning


@pytest.mark.usefixtures("store")
def test_a_search_ranks_by_meaning_too_where_the_application_can(cairn, meaning):
    async def fill(memory, _):
        await memory.keep(fact("zzzz zzzz"), "", NOW)

    with_memory(fill)
    query = ("search", "zz", "--principal", "ann")
    said = cairn(*query)
    assert (said.code, said.out) == (0, "")
    assert "ranked by their words alone: no application was named" in said.err
    said = cairn(*query, "--app", "meaning_desk:plain")
    assert (said.out, "the application has no embedder" in said.err) == ("", True)
    said = cairn(*query, "--app", "meaning_desk:rt")
    assert said.out.startswith("m3  zzzz zzzz")
    assert "ranked by their words and by meaning (letters)" in said.err
    lines = cairn(*query, "--json", "--app", "meaning_desk:rt").objects
    assert lines[0]["id"] == "m3"
    meaning().down = OSError("unplugged")
    said = cairn("search", "tea", "--principal", "ann", "--app", "meaning_desk:rt")
    assert said.out.startswith("m1  Likes green tea.")
    assert "degraded, not ranked by their words and by meaning" in said.err
    assert "OSError: unplugged" in said.err


@pytest.mark.usefixtures("store")
def test_a_search_needs_no_application_that_only_the_surroundings_name(cairn, monkeypatch):
    monkeypatch.setenv("CAIRN_APP", "nowhere_at_all:rt")
    said = cairn("search", "tea", "--principal", "ann", "--store", "cairn.db")
    assert said.out.startswith("m1  Likes green tea.")
    assert "the application is left out" in said.err
    assert cairn("search", "tea", "--app", "nowhere_at_all:rt").code == 2
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("search", "tea", "--store", "none.db")
    assert (said.code, "there is no store none.db" in said.err) == (2, True)


@pytest.mark.usefixtures("store")
def test_the_index_is_filled_by_hand_and_the_exit_code_says_whether_all_of_it_is(cairn, meaning):
    said = cairn("index")
    assert (said.code, "MemoryRules.embedder" in said.err) == (2, True)
    assert cairn("add", "x", "--principal", "bob", "--app", "meaning_desk:rt").code == 0
    meaning().down = OSError("unplugged")
    said = cairn("index", "--app", "meaning_desk:rt")
    assert (said.code, said.out) == (1, "0 facts got a vector; 2 have none\n")
    assert "unplugged" in said.err
    meaning().down = None
    said = cairn("index", "--app", "meaning_desk:rt")
    assert (said.code, said.out, said.err) == (0, "2 facts got a vector; 0 have none\n", "")


@pytest.mark.usefixtures("store")
def test_what_was_indexed_is_told_as_one_object(cairn, meaning):
    index = ("index", "--app", "meaning_desk:rt", "--json")
    assert cairn("add", "x", "--principal", "bob", "--app", "meaning_desk:rt").code == 0
    meaning().down = OSError("unplugged")
    said = cairn(*index)
    assert (said.code, "unplugged" in said.err) == (1, True)
    told = {"did": "indexed", "id": "facts"}
    line = "0 facts got a vector; 2 have none"
    assert said.objects == [told | {"changed": False, "said": line, "made": 0, "left": 2}]
    meaning().down = None
    line = "2 facts got a vector; 0 have none"
    assert cairn(*index).objects == [told | {"changed": True, "said": line, "made": 2, "left": 0}]
    assert cairn(*index).objects[0]["changed"] is False


@pytest.mark.usefixtures("store")
def test_projects_that_runs_may_say_are_those_that_facts_are_added_to(cairn, tmp_path, monkeypatch):
    (tmp_path / "many_desk.py").write_text(
        APP.replace('project="shop"', 'projects=("shop", "blog")')
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, code in (("shop", 0), ("blog", 0), ("typo", 2)):
        monkeypatch.delitem(sys.modules, "many_desk", raising=False)
        said = cairn("add", "x", "--project", name, "--app", "many_desk:rt")
        assert said.code == code, said.err
    assert "It shares those of shop, blog" in said.err
