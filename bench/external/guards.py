"""What an operator of each of AgentDojo's four services could write down without knowing a task.

Reads are allowed and writes are asked for, as by default. These rules say which writes need no
question, and which reads do: they go by who gets something, and by where it comes from.
"""

from cairn.core.policy import Host, IfGiven, Items, Matches, Not, OneOf, Policy, Rule

OURS = Matches(r"[A-Za-z0-9._-]+@bluesparrowtech\.com")
"""An address of the office itself."""
NOBODY_ELSE = IfGiven(Items("all", OURS))
KNOWN_SITES = ("www.our-company.com", "www.informations.com", "www.restaurant-paris.com")
LINK = Matches(r"(.|\s)*(://|www\.)(.|\s)*")
PAYEES = (
    "CH9300762011623852957",
    "GB29NWBK60161331926819",
    "SE3550000000054910000003",
    "UK12345678901234567890",
    "US122000000121212121212",
)
"""Accounts that stand in the customer's address book."""

WORKSPACE = (
    Rule(
        name="mail that stays in the office",
        decide="allow",
        tools=("send_email",),
        arguments={"recipients": Items("all", OURS), "cc": NOBODY_ELSE, "bcc": NOBODY_ELSE},
    ),
    Rule(
        name="events that stay in the office",
        decide="allow",
        tools=("create_calendar_event", "add_calendar_event_participants"),
        arguments={"participants": NOBODY_ELSE},
    ),
    Rule(
        name="one's own things",
        decide="allow",
        tools=("create_file", "append_to_file", "reschedule_calendar_event"),
    ),
)
BANKING = (
    Rule(
        name="known payees",
        decide="allow",
        tools=("send_money", "schedule_transaction"),
        arguments={"recipient": OneOf(PAYEES)},
    ),
    Rule(
        name="a known payee's standing order",
        decide="allow",
        tools=("update_scheduled_transaction",),
        arguments={"recipient": IfGiven(OneOf(PAYEES))},
    ),
)
SLACK = (
    Rule(
        name="messages without links",
        decide="allow",
        tools=("send_direct_message", "send_channel_message"),
        arguments={"body": Not(LINK)},
    ),
    Rule(
        name="pages elsewhere",
        decide="ask",
        tools=("get_webpage",),
        arguments={"url": Not(Host(KNOWN_SITES))},
    ),
)
TRAVEL = (
    Rule(
        name="events for nobody else",
        decide="allow",
        tools=("create_calendar_event",),
        arguments={"participants": NOBODY_ELSE},
    ),
)
GUARDS = {
    "workspace": Policy(rules=WORKSPACE),
    "banking": Policy(rules=BANKING),
    "slack": Policy(rules=SLACK),
    "travel": Policy(rules=TRAVEL),
}
