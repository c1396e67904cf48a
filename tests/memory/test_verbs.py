"""What people do with a runtime's memory, and what the rules of a deployment may say."""

import asyncio
import json

import pytest
from tests.memory.kit import ANN, DAY, Clock, fact, runtime

from cairn import ConfigError, Principal, Refused, UnknownRun
from cairn.memory import MemoryRules
from cairn.memory.facts import FactFilter
from cairn.memory.inmemory import InMemoryMemory
from cairn.memory.listing import facts_as_of
from cairn.runtime.memories import memory_rules_of


@pytest.fixture
def rt():
    with runtime(":memory:", ["done"], clock=Clock()) as rt:
        yield rt


def test_what_a_person_adds_is_trusted_and_kept_under_their_name(rt):
    kept = rt.remember("Likes tea.", principal="ann", tags=("drinks",), by="ada")
    assert (kept.n, kept.state) == (1, "live")
    (found,) = rt.facts("ann")
    assert (found.trust, found.content.tags) == ("owner", ("drinks",))
    entries = asyncio.run(rt.store.read("store"))
    assert [(e.event.NAME, e.actor) for e in entries] == [("memory.kept", "ada")]
    assert rt.remember("Likes tea.", principal="ann", tags=("drinks",)).known


def test_what_was_kept_is_named_as_the_other_verbs_take_it(rt):
    rome = rt.remember("Lives in Rome.", principal="ann")
    oslo = rt.remember("Lives in Oslo.", principal="ann", supersedes=rome.id)
    assert (rome.id, oslo.id, oslo.replaced) == ("m1", "m2", (1,))
    assert rt.forget_fact(oslo.id) == [rome.id, oslo.id]


def test_facts_can_be_listed_replaced_forgotten_exported_and_erased(rt):
    rt.remember("Lives in Rome.", principal="ann")
    rt.remember("Lives in Oslo.", principal="ann", supersedes="m1")
    assert [each.state for each in rt.facts("ann")] == ["superseded", "live"]
    assert [each.id for each in rt.facts(state="live")] == ["m2"]
    lines = [json.loads(line) for line in rt.export_facts("ann")]
    assert [line["text"] for line in lines] == ["Lives in Rome.", "Lives in Oslo."]
    assert rt.forget_fact("m2", by="ann", reason="wrong") == ["m1", "m2"]
    rt.remember("Lives in Lima.", principal="ann")
    assert rt.erase_facts("ann", by="dpo").facts == 1
    assert rt.facts() == []
    names = [e.event.NAME for e in asyncio.run(rt.store.read("store"))]
    assert names[-4:] == ["memory.forgotten"] * 2 + ["memory.kept", "memory.erased"]


def test_who_decided_stands_in_the_audit(rt):
    from cairn.core.views.audit import TOLD

    names = {kind.NAME for kind in TOLD}
    assert {"memory.kept", "memory.reviewed", "memory.forgotten", "memory.erased"} <= names


def test_a_fact_added_for_some_days_ends_after_them(rt):
    rt.remember("The code is 4711.", principal="ann", days=1)
    assert len(rt.recall("code", principal="ann").hits) == 1
    rt.host.clock.now += DAY
    assert rt.recall("code", principal="ann").hits == ()


def test_a_list_says_of_a_fact_that_its_time_is_up_and_finds_it_by_that(rt):
    rt.remember("The code is 4711.", principal="ann", days=1)
    rt.remember("Lives in Rome.", principal="ann", days=1)
    rt.remember("Lives in Oslo.", principal="ann", supersedes="m2")
    assert [each.state for each in rt.facts("ann")] == ["live", "superseded", "live"]
    rt.host.clock.now += DAY
    assert [each.state for each in rt.facts("ann")] == ["expired", "superseded", "live"]
    assert [each.id for each in rt.facts(state="live")] == ["m3"]
    assert [each.id for each in rt.facts("ann", state="expired")] == ["m1"]
    with pytest.raises(ConfigError, match=r"state: 'gone' is none.*live, expired, waiting or"):
        rt.facts(state="gone")


def test_what_has_expired_takes_no_place_in_a_list_of_what_counts(rt):
    for n in range(5):
        rt.remember(f"Code {n}.", principal="ann", days=None if n in {2, 4} else 1)
    rt.host.clock.now += DAY
    now = rt.host.clock.now
    for state, limit, ids in (
        ("live", 2, ["m3", "m5"]),
        ("live", 1, ["m3"]),
        ("expired", 3, ["m1", "m2", "m4"]),
        ("expired", 2, ["m1", "m2"]),
        ("", 4, ["m1", "m2", "m3", "m4"]),
    ):
        where = FactFilter(state=state, limit=limit)
        found = asyncio.run(facts_as_of(rt.memory, where, now))
        assert [each.id for each in found] == ids


def test_a_fact_without_an_end_counts_for_ever_and_no_number_says_so(rt):
    rt.remember("The code is 4711.", principal="ann", days=None)
    assert rt.facts("ann")[0].content.expires_at == 0
    with pytest.raises(ConfigError, match=r"days: 0 cannot be.*leave it out.*for ever"):
        rt.remember("x", days=0)


@pytest.mark.parametrize(
    ("verb", "arguments", "error"),
    [
        ("remember", {"text": "", "principal": "ann"}, ConfigError),
        ("remember", {"text": "x", "scope": "project"}, ConfigError),
        ("remember", {"text": "x", "scope": "nobody"}, ConfigError),
        ("remember", {"text": "x", "days": -1}, ConfigError),
        ("remember", {"text": "x", "days": 0}, ConfigError),
        ("remember", {"text": "x", "days": 0.0}, ConfigError),
        ("remember", {"text": "x", "days": 1e-15}, ConfigError),
        ("remember", {"text": "x", "days": float("nan")}, ConfigError),
        ("remember", {"text": "x", "supersedes": "m9"}, UnknownRun),
        ("remember", {"text": "x", "supersedes": "nine"}, UnknownRun),
        ("remember", {"text": "x", "principal": 7}, ConfigError),
        ("recall", {"query": "x", "limit": 0}, ConfigError),
        ("recall", {"query": "x", "scope": "project"}, ConfigError),
        ("facts", {"state": "odd"}, ConfigError),
        ("accept_fact", {"fact": "m9"}, UnknownRun),
        ("accept_fact", {"fact": "m1", "trust": "much"}, ConfigError),
        ("reject_fact", {"fact": "x"}, UnknownRun),
        ("forget_fact", {"fact": "m9"}, UnknownRun),
    ],
)
def test_what_cannot_be_is_refused_with_a_typed_error(rt, verb, arguments, error):
    with pytest.raises(error):
        getattr(rt, verb)(**arguments)


@pytest.mark.parametrize(
    ("verb", "arguments", "field"),
    [
        ("remember", {"text": 5}, "text"),
        ("remember", {"text": "x", "days": "3"}, "days"),
        ("remember", {"text": "x", "days": True}, "days"),
        ("remember", {"text": "x", "days": 3_651}, "days"),
        ("remember", {"text": "x", "days": -0.5}, "days"),
        ("remember", {"text": "x", "days": float("nan")}, "days"),
        ("remember", {"text": "x", "days": 1e-12}, "days"),
        ("remember", {"text": "x", "supersedes": 7}, "supersedes"),
        ("remember", {"text": "x", "tags": "bday"}, "tags"),
        ("remember", {"text": "x", "tags": (7,)}, "tags"),
        ("remember", {"text": "x", "principal": ""}, "principal"),
        ("remember", {"text": "x", "agent": 7}, "agent"),
        ("recall", {"query": None}, "query"),
        ("recall", {"query": "x", "limit": "5"}, "limit"),
        ("recall", {"query": "x", "limit": 51}, "limit"),
        ("accept_fact", {"fact": 7}, "fact"),
        ("reject_fact", {"fact": "m1", "reason": 7}, "reason"),
        ("forget_fact", {"fact": None}, "fact"),
    ],
)
def test_a_value_of_another_kind_is_named_by_its_field(rt, verb, arguments, field):
    with pytest.raises(ConfigError) as refused:
        getattr(rt, verb)(**arguments)
    assert refused.value.field == field


KEY = "ghp_" + "a9K2m4Qx7ZtB1vN8cL5pR3wY6sD0fG2hJ4kE"


@pytest.mark.parametrize("said", [{"text": f"The token is {KEY}"}, {"text": "x", "tags": (KEY,)}])
def test_what_looks_like_a_key_is_refused_and_no_marker_is_kept_in_its_place(rt, said):
    with pytest.raises(ConfigError, match=r"looks like a key, .redacted github-token.") as refused:
        rt.remember(**said)
    assert KEY not in str(refused.value)
    assert rt.facts() == []


def test_of_whom_a_fact_of_an_agent_is_has_to_be_said():
    with runtime(":memory:", ["done"], memory=MemoryRules(agents=("desk",))) as rt:
        with pytest.raises(ConfigError, match="Name it with agent=: desk"):
            rt.remember("x", scope="agent")
        with pytest.raises(ConfigError, match="not shared here by agent 'typo'"):
            rt.remember("x", scope="agent", agent="typo")
        assert rt.remember("x", scope="agent", agent="desk").state == "live"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"project": "shop"}, "project"),
        ({"agent": "desk"}, "agent"),
        ({"scope": "agent", "agent": "desk", "project": "shop"}, "project"),
        ({"scope": "project", "agent": "desk", "project": "shop"}, "agent"),
    ],
)
def test_a_fact_is_not_kept_for_somebody_else_than_was_named(said, field):
    rules = MemoryRules(project="shop", agents=("desk",))
    with runtime(":memory:", ["done"], memory=rules) as rt:
        with pytest.raises(ConfigError, match=f'Write scope="{field}" beside it') as refused:
            rt.remember("Ships on Monday.", **said)
        assert refused.value.field == field
        assert rt.facts() == []


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\u200b \u2060\ufeff", "\u00ad", "\u3164"])
def test_a_fact_in_which_nothing_is_seen_is_refused(rt, text):
    with pytest.raises(ConfigError, match="Say what is to be remembered"):
        rt.remember(text)
    assert rt.facts() == []


@pytest.mark.parametrize("limit", [0, -1, 51])
def test_a_recall_of_too_few_or_too_many_says_how_many_it_gives(rt, limit):
    with pytest.raises(ConfigError, match=r"limit: .* Give 1 to 50$"):
        rt.recall("tea", limit=limit)
    assert rt.recall("tea", limit=50).hits == rt.recall("tea", limit=1).hits == ()


@pytest.mark.parametrize("by", ["a\0", "\ud800"])
def test_who_handles_a_fact_is_named_as_a_principal_is(rt, by):
    rt.remember("Likes tea.")
    for verb in (
        lambda: rt.remember("Likes coffee.", by=by),
        lambda: rt.accept_fact("m1", by=by),
        lambda: rt.reject_fact("m1", by=by),
        lambda: rt.forget_fact("m1", by=by),
        lambda: rt.erase_facts("local", by=by),
    ):
        with pytest.raises(ConfigError, match=r"^by: "):
            verb()
    assert len(rt.facts()) == 1


def test_a_name_among_those_who_share_that_no_agent_here_has_is_warned_of(caplog):
    for name, meant in (("dekc", "did you mean 'desk'?"), ("sales", "another process may have it")):
        with runtime(":memory:", ["done"], memory=MemoryRules(agents=("desk", name))):
            said = f"MemoryRules.agents names '{name}', which is not here; {meant}"
            assert said in caplog.messages


def test_a_runtime_that_is_refused_has_made_no_store(tmp_path):
    with pytest.raises(ConfigError, match=r"Runtime\.memory"):
        runtime(tmp_path / "cairn.db", ["done"], memory=7)
    assert list(tmp_path.iterdir()) == []


def test_a_memory_of_ones_own_takes_the_place_of_the_stores():
    own = InMemoryMemory()
    with runtime(":memory:", ["done"], memory=own) as rt:
        rt.remember("Likes tea.", principal="ann")
        assert asyncio.run(rt.store.read("store")) == []
    assert len(own.tables.rows) == 1
    with pytest.raises(ConfigError, match=r"Runtime\.memory"):
        memory_rules_of(7)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"review": "some"}, "review"),
        ({"project": 7}, "project"),
        ({"agents": "desk"}, "agents"),
        ({"agents": (7,)}, "agents"),
        ({"embed_timeout": -1}, "embed_timeout"),
        ({"embed_timeout": "3"}, "embed_timeout"),
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(wrong, field):
    with pytest.raises(ConfigError, match=rf"MemoryRules\.{field}"):
        MemoryRules(**wrong)


def test_a_function_that_names_no_project_shares_nothing_by_mistake():
    def raising(error):
        def broken(principal):
            raise error

        return broken

    broken = map(raising, (KeyError("ann"), SystemExit(3), asyncio.CancelledError()))
    for project in (*broken, lambda _: 7):
        with pytest.raises(ConfigError, match=r"MemoryRules\.project"):
            MemoryRules(project=project).scopes(ANN, "desk")


def test_scopes_are_the_runs_own_and_within_its_tenant():
    rules = MemoryRules(project=lambda who: f"of-{who.tenant}", agents=("desk",))
    found = rules.scopes(Principal(id="ann", tenant="acme"), "desk")
    assert {kind: (each.name, each.tenant) for kind, each in found.items()} == {
        "user": ("ann", "acme"),
        "project": ("of-acme", "acme"),
        "agent": ("desk", "acme"),
    }
    assert rules.scopes(ANN, "other").keys() == {"user", "project"}


def test_a_scope_that_is_full_takes_no_more(monkeypatch):
    monkeypatch.setattr("cairn.memory.shelf.MAX_FACTS", 3)
    monkeypatch.setattr("cairn.memory.shelf.MAX_WAITING", 1)

    async def whole():
        memory = InMemoryMemory()
        for n in range(2):
            await memory.keep(fact(f"fact {n}"), "", 1)
        await memory.keep(fact("waits", waits=True), "", 1)
        with pytest.raises(Refused, match="is full"):
            await memory.keep(fact("one more"), "", 1)
        await memory.forget(1, 1)
        with pytest.raises(Refused, match="wait for a review"):
            await memory.keep(fact("waits too", waits=True), "", 1)
        await memory.keep(fact("one more"), "", 1)

    asyncio.run(whole())
