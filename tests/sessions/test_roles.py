"""Nobody's message is worked on with roles that its sender does not have."""

import pytest

from cairn import Agent, Principal, Runtime, Scripted, UnknownAgent, call, tool
from cairn.core import commands as cmd
from cairn.core.messages import Text
from cairn.core.policy import Policy, Rule
from cairn.engine.turns import take_over
from cairn.errors import Refused

ADMIN = Principal(id="ann", roles=("admin", "staff"))
STAFF = Principal(id="ann", roles=("staff",))
PLAIN = Principal(id="ann")
ADMINS = Rule(name="admins", decide="allow", tools=("wipe",), roles=("admin",))
POLICY = Policy(rules=(ADMINS,))


@tool(effect="write")
def wipe(n: int) -> str:
    """Wipe."""
    return "wiped"


def model(request):
    said = [p.content for m in request.messages[-1:] if m.role == "user" for p in m.parts]
    if "fail" in said:
        return ""
    return call("wipe", n=1) if any("wipe" in text for text in said) else "ok"


def runtime(**options) -> Runtime:
    agents = [Agent(name, Scripted(model), tools=[wipe], **options) for name in ("desk", "other")]
    return Runtime(":memory:", agents, policy=POLICY)


def started(rt, run):
    return [e.event.rule for e in rt.trace(run) if e.event.NAME == "tool.started"]


def roles(rt, run):
    """With which roles a run works now."""
    found = [e.event for e in rt.trace(run)]
    told = [e.roles for e in found if e.NAME == "run.continued" and e.roles is not None]
    return told[-1] if told else found[0].principal.roles


# ---------------------------------------------------------------- steering


def test_a_message_with_fewer_roles_waits_for_a_run_of_its_own_with_these():
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=ADMIN, id="a")
        posted = rt.post("s", "please wipe", principal=PLAIN)
        assert posted.how == "queued"
        rt.work(until_idle=True)
        assert started(rt, "a") == started(rt, posted.run) == []
        assert roles(rt, posted.run) == ()
        assert rt.get(posted.run).status == "waiting", "a person is asked, as without the session"


@pytest.mark.parametrize("who", [ADMIN, Principal(id="ann", roles=("x", "staff", "admin"))])
def test_a_message_with_all_roles_of_the_run_steers_it(who):
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=ADMIN, id="a")
        posted = rt.post("s", "please wipe", principal=who)
        assert (posted.how, posted.run) == ("steered", "a")
        (queued,) = [e.event for e in rt.trace("a") if e.event.NAME == "input.queued"]
        assert queued.roles == who.roles
        rt.work(until_idle=True)
        assert started(rt, "a") == ["deployment: admins"]


def test_a_message_with_more_roles_than_the_run_is_worked_on_with_those_of_the_run():
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=PLAIN, id="a")
        assert rt.post("s", "please wipe", principal=ADMIN).how == "steered"
        rt.work(until_idle=True)
        assert started(rt, "a") == []


def test_a_run_itself_refuses_a_message_with_fewer_roles():
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=ADMIN, id="a")
        message = cmd.Queue(parts=(Text("please wipe"),), roles=("staff",))
        with pytest.raises(Refused, match="with the roles admin, which the sender does not have"):
            rt.portal.call(rt.client.submit("a", message, "ann"))


# ---------------------------------------------------------------- what was left unread


def unread(rt, who, said):
    """Run `a` of this principal was told this, and ended before it was read."""
    rt.enqueue("desk", "hello", session="s", principal=who, id="a")
    assert rt.post("s", said, principal=who).how == "steered"
    rt.cancel("a")


def test_a_run_that_takes_over_messages_has_the_roles_that_their_senders_had():
    with runtime() as rt:
        unread(rt, PLAIN, "please wipe")
        rt.enqueue("desk", "good morning", session="s", principal=ADMIN, id="b")
        assert roles(rt, "b") == ()
        rt.work(until_idle=True)
        assert started(rt, "b") == []
        rt.cancel("b")
        rt.run("desk", "please wipe", session="s", principal=ADMIN, id="c")
        assert (roles(rt, "c"), started(rt, "c")) == (ADMIN.roles, ["deployment: admins"])


def test_a_queued_run_that_takes_over_messages_has_the_roles_that_their_senders_had():
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=STAFF, id="a")
        rt.post("s", "please wipe", principal=STAFF)
        posted = rt.post("s", "good morning", principal=ADMIN, mode="queue")
        rt.cancel("a")
        rt.work(until_idle=True)
        assert roles(rt, posted.run) == ("staff",)
        assert started(rt, posted.run) == []


@pytest.mark.parametrize(("said", "left"), [((), ()), (None, ()), (("admin", "staff"), None)])
def test_a_run_for_what_was_left_unread_has_the_roles_common_to_all_of_it(said, left):
    """A message of an earlier version says nothing of roles, so that nobody knows any."""
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", principal=ADMIN, id="a")
        rt.post("s", "please wipe", principal=ADMIN)
        if said != ():
            message = cmd.Queue(parts=(Text("and again"),), roles=said)
            rt.portal.call(rt.client.submit("a", message, "ann"))
        rt.cancel("a")
        run = rt.portal.call(take_over(rt.store, "a", rt.host))
        wanted = ADMIN.roles if said == () or left is None else left
        assert roles(rt, run) == wanted


# ---------------------------------------------------------------- another agent


def test_a_message_for_another_agent_than_the_one_at_work_waits_for_a_run_of_that_one():
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", id="a")
        posted = rt.post("s", "for you", agent="other")
        assert posted.how == "queued"
        assert rt.post("s", "for the one at work", agent="desk").how == "steered"
        rt.work(until_idle=True)
        assert rt.trace(posted.run)[0].event.agent == "other"


@pytest.mark.parametrize("mode", [None, "steer", "queue", "interrupt"])
def test_a_message_for_an_agent_that_is_not_there_is_refused_and_kept_nowhere(mode):
    with runtime() as rt:
        rt.enqueue("desk", "hello", session="s", id="a")
        with pytest.raises(UnknownAgent, match="no-such"):
            rt.post("s", "hello", agent="no-such", mode=mode)
        assert len(rt.trace("a")) == 1
        assert len(rt.runs()) == 1
