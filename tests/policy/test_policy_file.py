"""A policy as YAML: every fault with its line, all at once, and nothing clever let in."""

import re
from pathlib import Path

import pytest

from cairn.core.policy import (
    AllOf,
    Amount,
    Command,
    Equals,
    From,
    Host,
    IfGiven,
    Inside,
    Items,
    Matches,
    Not,
    OneOf,
    Policy,
    Range,
    Redirect,
    Rule,
    Spend,
    Value,
)
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError
from cairn.governance.never import findings
from cairn.governance.nodes import MOST_BYTES
from cairn.governance.policy_file import PolicyFileError, load_policy, parse_policy

WHOLE = r"""
version: 1
name: shop
tools:
  wipe: deny
effects: {write: allow}
rules:
  - name: small refunds
    decide: allow
    reason: nobody is asked for small change
    tools: [refund, "re*"]
    effects: write
    agents: shop
    principals: kim
    roles: [clerk, lead]
    tenants: acme
    kinds: [operate]
    taint: none
    spend: {usd: 1.5, calls: 3}
    arguments:
      cents: {min: 1, max: 1000}
      order.id: {matches: 'ORD-\d{4}'}
      to: {all: {one_of: [a, b]}}
      url: {host: ["*.example.org", example.org], ports: 8080}
      path: {inside: [docs, src]}
      out: {outside: /etc}
      note: {equals: null, optional: true}
      sum: {amount: {max: 100, currency: EUR, currency_argument: unit}}
      run:
        command:
          programs: git
          first: [log, status]
          only_flags: []
          words: {inside: .}
          most_words: 3
      who: {not: {equals: admin}, matches: "[a-z]+"}
  - name: drafts
    decide: redirect
    tools: mail
    redirect:
      tool: draft
      arguments: {to: {from: to.0}, note: {value: {held: [1, true, null, text]}}}
  - name: leads
    decide: ask
    approval: {roles: lead, other_person: true, expires_in: 3600}
agents:
  shop: {tools: {refund: ask}}
principals:
  kim: {effects: {write: ask}}
roles:
  guest:
    rules:
      - {name: nothing, decide: deny}
tenants:
  acme: {}
"""


def test_a_whole_file_is_read_as_it_was_meant() -> None:
    small = Rule(
        name="small refunds",
        decide="allow",
        reason="nobody is asked for small change",
        tools=("refund", "re*"),
        effects=("write",),
        agents=("shop",),
        principals=("kim",),
        roles=("clerk", "lead"),
        tenants=("acme",),
        kinds=("operate",),
        taint=("none",),
        spend=Spend(micro_usd=1_500_000, calls=3),
        arguments={
            "cents": Range(min=1, max=1000),
            "order.id": Matches(pattern=r"ORD-\d{4}"),
            "to": Items(mode="all", predicate=OneOf(values=("a", "b"))),
            "url": Host(hosts=("*.example.org", "example.org"), ports=(8080,)),
            "path": Inside(roots=("docs", "src")),
            "out": Not(predicate=Inside(roots=("/etc",))),
            "note": IfGiven(predicate=Equals(value=None)),
            "sum": Amount(max=100, currency="EUR", currency_argument="unit"),
            "run": Command(
                programs=("git",),
                first=("log", "status"),
                only_flags=(),
                words=Inside(roots=(".",)),
                most_words=3,
            ),
            "who": AllOf(
                predicates=(Not(predicate=Equals(value="admin")), Matches(pattern="[a-z]+"))
            ),
        },
    )
    drafts = Rule(
        name="drafts",
        decide="redirect",
        tools=("mail",),
        redirect=Redirect(
            tool="draft",
            arguments={
                "to": From(path="to.0"),
                "note": Value(value={"held": [1, True, None, "text"]}),
            },
        ),
    )
    terms = ApprovalTerms(roles=("lead",), other_person=True, expires_in=3600.0)
    read = parse_policy(WHOLE)
    assert read.policy == Policy(
        name="shop",
        tools={"wipe": "deny"},
        effects={"write": "allow"},
        rules=(small, drafts, Rule(name="leads", decide="ask", approval=terms)),
        agents={"shop": Policy(tools={"refund": "ask"})},
        principals={"kim": Policy(effects={"write": "ask"})},
        roles={"guest": Policy(rules=(Rule(name="nothing", decide="deny"),))},
        tenants={"acme": Policy()},
    )
    lines = WHOLE.splitlines()
    for place, line in read.lines.items():
        assert f"name: {place.rpartition('rules.')[2]}" in lines[line - 1], place


def test_the_example_of_the_docs_is_a_policy_in_which_every_rule_can_matter() -> None:
    page = Path(__file__).parents[2] / "docs" / "policy.md"
    examples = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert all(findings(parse_policy(each)) == [] for each in examples)
    read = parse_policy(examples[0])
    assert len(read.policy.rules) == 3
    assert findings(read) == []


def faults(text: str) -> list[str]:
    """Where and what, without the fix; every fault has one."""
    with pytest.raises(PolicyFileError) as refused:
        parse_policy(text, "p.yaml")
    error = refused.value
    assert str(error).splitlines() == [f.said("p.yaml") for f in error.faults]
    assert all(f.fix and f.problem for f in error.faults)
    return [f"{f.line} {f.field}: {f.problem}" for f in error.faults]


def test_all_faults_are_said_at_once_each_with_its_line() -> None:
    text = (
        "version: 2\n"
        "tools: {refund: maybe}\n"
        "efects: {write: allow}\n"
        "rules:\n"
        "  - name: small\n"
        "    decide: allow\n"
        "    arguments:\n"
        '      cents: {max: "100"}\n'
        '      note: {matches: "(a"}\n'
        "      x: 5\n"
        "  - decide: deny\n"
        "  - name: twice\n"
        "    decide: deny\n"
        "    decide: ask\n"
        "    tenants: NO\n"
        "  - name: twice\n"
        "    decide: perhaps\n"
    )
    assert faults(text) == [
        "1 version: this version is not known",
        "2 tools.refund: 'maybe' is no decision",
        "3 efects: there is no such field",
        "8 rules[1].arguments.cents.max: it is text, not a number",
        "9 rules[1].arguments.note.matches: a group is not closed",
        "10 rules[1].arguments.x: it is a number",
        "11 rules[2].name: it is missing",
        "14 rules[3].decide: it stands twice, first in line 13",
        "15 rules[3].tenants: it is true or false, not text",
        "16 rules[4]: the name 'twice' stands in line 12 already",
        "17 rules[4].decide: 'perhaps' is no decision",
    ]


def test_a_fault_in_the_shape_of_a_rule_hides_none_of_its_other_faults() -> None:
    text = (
        "rules:\n"
        "  - name: a\n"
        "    decide: perhaps\n"
        "    argumnets: {}\n"
        "    tools: [5, pay]\n"
        "    effects: [wrte, read, raed]\n"
        "    kinds: [quary]\n"
        "    taint: [any, web]\n"
        "    arguments: {x..y: {min: 1}, z: 5}\n"
        "    approval: {roles: lead}\n"
        "    redirect: {tool: draft}\n"
        "  - {name: a, decide: redirect, redirect: {}}\n"
    )
    assert sorted(faults(text)) == sorted(
        [
            "3 rules[1].decide: 'perhaps' is no decision",
            "4 rules[1].argumnets: there is no such field",
            "5 rules[1].tools[1]: it is a number, not text",
            "6 rules[1].effects: ['wrte'] is unknown",
            "6 rules[1].effects: ['raed'] is unknown",
            "7 rules[1].kinds: ['quary'] is unknown",
            "8 rules[1].taint: any and none stand alone",
            "9 rules[1].arguments: 'x..y' is no path",
            "9 rules[1].arguments.z: it is a number",
            "10 rules[1].approval: nobody is asked by it",
            "12 rules[2].redirect.tool: it is missing",
            "12 rules[2]: the name 'a' stands in line 2 already",
        ]
    )


def test_a_misspelt_field_is_told_what_was_meant() -> None:
    with pytest.raises(PolicyFileError) as refused:
        parse_policy("rules:\n  - {name: a, decide: deny, argumnets: {}}\n")
    assert refused.value.faults[0].fix == "Did you mean arguments?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 : the file is empty"),
        ("# nothing\n", "1 : the file is empty"),
        ("- a\n", "1 : it is a list"),
        ("tools: [a]\n", "1 tools: it is a list"),
        ("tools:\n  a: allow\n  a: deny\n", "3 tools.a: it stands twice, first in line 2"),
        ("tools: {re*: ask}\n", "1 tools.re*: a table takes names only"),
        ("effects: {writes: ask}\n", "1 effects.writes: there is no such field"),
        ("tools: {a: no}\n", "1 tools.a: it is true or false, not text"),
        ("5: x\n", "1 : the key '5' is no text"),
        ("rules: {a: b}\n", "1 rules: it is a mapping"),
        ("rules: [a]\n", "1 rules[1]: it is text"),
        ("agents: {a: {agents: {b: {}}}}\n", "1 agents.a.agents: there is no such field"),
        ("a: &x {b: c}\n", "1 : anchors and aliases are not taken"),
        ("tools: {a: !!python/name:os.system ''}\n", "1 : the tag"),
        ("tools: {a: !x y}\n", "1 : the tag '!x' is not taken"),
        ("tools: {}\n---\ntools: {}\n", "2 : a second document begins"),
        ("tools: {a: 2020-01-01}\n", "1 tools.a: it is a value of another kind, not text"),
        ("<<: {a: b}\n", "1 : the key '<<' is no text"),
        ("tools: {a: allow\n", "2 : expected"),
        ("tools:\n\t- a\n", "2 : found character"),
        ("tools: \x07\n", "1 : it is no YAML"),
        ("a: " + "[" * 40 + "]" * 40 + "\n", "1 : it is nested too deeply"),
        ("a: [" + "1," * 30_000 + "]\n", "1 : it is nested too deeply, or too long"),
        ("# " + "x" * MOST_BYTES, "1 : the file is too large"),
    ],
    ids=range(24),
)
def test_what_is_no_plain_policy_is_refused(text: str, said: str) -> None:
    assert faults(text)[0].startswith(said)


def test_aliases_that_would_grow_without_end_are_never_built() -> None:
    grown = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    assert faults(grown) == ["1 : anchors and aliases are not taken"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("arguments: {x: {min: .nan}}", "arguments.x.min: a bound is no number"),
        ("arguments: {x: {}}", "arguments.x: it asks for nothing"),
        ("arguments: {}", "arguments: it is empty"),
        ("arguments: {x..y: {min: 1}}", "arguments: 'x..y' is no path"),
        ("arguments: {x: {inside: ../a}}", "arguments.x.inside: '../a' is no folder"),
        ("arguments: {x: {host: 'https://a.org'}}", "arguments.x.host: 'https://a.org' is no host"),
        ("arguments: {x: {ports: 80}}", "arguments.x.ports: ports belong to a host"),
        ("arguments: {x: {one_of: []}}", "arguments.x.one_of: it names no value"),
        ("arguments: {x: {equals: [1]}}", "arguments.x.equals: it is a list"),
        ("arguments: {x: {not: {all: {min: 1}}}}", "arguments.x.not.all: there is no such field"),
        ("arguments: {x: {all: {min: 1}, max: 5}}", "arguments.x: all and any stand alone"),
        ("arguments: {x: {amount: {max: 1, currency: EUR}}}", "arguments.x.amount.currency_arg"),
        ("arguments: {x: {command: {}}}", "arguments.x.command.programs: it is missing"),
        ("arguments: {x: {command: {programs: ./x}}}", "arguments.x.command.programs: './x'"),
        ("spend: {}", "spend: it names no amount"),
        ("spend: {usd: -1}", "spend.usd: it is no amount"),
        ("spend: {calls: 1.5}", "spend.calls: it is no whole number"),
        ("spend: {usd: 1, micro_usd: 1}", "spend.usd: usd and micro_usd say the same"),
        ("redirect: {tool: a}", "redirect: decide and redirect go together"),
        ("approval: {roles: a}", "approval: nobody is asked by it"),
        ("taint: [any, web]", "taint: any and none stand alone"),
        ("kinds: quary", "kinds: ['quary'] is unknown"),
        ("tools: []", "tools: the list is empty"),
        ("reason: ''", "reason: it is empty"),
    ],
    ids=range(24),
)  # fmt: skip
def test_a_rule_that_cannot_be_is_said_by_its_field(rule: str, said: str) -> None:
    text = f"rules:\n  - name: a\n    decide: deny\n    {rule}\n"
    first = faults(text)[0]
    assert first.startswith((f"4 rules[1].{said}", f"2 rules[1].{said}")), first


def test_a_redirect_that_says_not_what_it_hands_over_is_refused() -> None:
    text = "rules:\n  - {name: a, decide: redirect, redirect: {tool: b, arguments: {x: {}}}}\n"
    assert faults(text) == ["2 rules[1].redirect.arguments.x: it says not where the value is from"]
    text = "rules:\n  - {name: a, decide: redirect, redirect: {}}\n"
    assert faults(text)[0] == "2 rules[1].redirect.tool: it is missing"


def test_a_file_is_read_as_utf_8_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes("\ufeffname: Prüfung\n".encode())
    assert load_policy(file).name == "Prüfung"
    file.write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_policy(file)
    file.write_bytes(b"#" * (MOST_BYTES + 10))
    with pytest.raises(PolicyFileError, match="too large"):
        load_policy(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy(tmp_path)
