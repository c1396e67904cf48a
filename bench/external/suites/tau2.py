"""tau2 retail: a shop's orders, judged by the hash of its database; the truth holds real errors."""

import inspect
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

from suites.case import Call, Case, Failed, Offer, Turn, lines
from suites.standins import enter, stand_in


class ToolError(Exception):
    """What the simulator raises for a call that is refused."""


class StoreModel(BaseModel):
    """The part of inspect-ai's store that the simulator stands on."""

    instance: str | None = None


class TheStore:
    """What the tools ask for the shop they work on."""

    tools: Any = None


store = TheStore()

# inspect-ai brings some forty packages; the shop needs four of its names, and none of its store.
stand_in("inspect_ai")
stand_in("inspect_ai.tool", Tool=object, ToolError=ToolError, tool=lambda function: function)
stand_in("inspect_ai.util", StoreModel=StoreModel, store_as=lambda *_: store.tools)
stand_in("inspect_ai.model", Content=object, ContentText=object)
enter("inspect_evals.tau2")

from inspect_evals.tau2.retail.RetailAgentTools import RetailAgentTools  # noqa: E402 - see above
from inspect_evals.tau2.retail.tools import all_retail_tools  # noqa: E402 - see above

TABLES = ("orders", "products", "users")


class ShopWorld:
    """The shop of this process, put back to its beginning. A second world takes its place."""

    def __init__(self, case: Case, shop: "OneShop") -> None:
        self._case = case
        self._shop = shop
        shop.put_back()

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return self._shop.call(tool, arguments)

    def snapshot(self) -> str:
        return self._shop.tools.db.model_dump_json()

    def judge(self, answer: str, calls: list[Call]) -> list[str]:
        problems = []
        found, changes = self._shop.tools.db.get_hash(), self._shop.changes()
        if found != self._wanted(calls):
            problems.append("the hash of the database is another one")
        if changes != self._case.raw["final_state_changes"]:
            problems.append("other records were changed")
        said = answer.lower().replace(",", "")
        missing = [i for i in self._case.raw["communicate_info"] or [] if i.lower() not in said]
        if missing:
            problems.append(f"the answer lacks {missing}")
        return problems

    def _wanted(self, calls: list[Call]) -> str:
        """The hash after the truth alone; found out once for each case."""
        key = f"{self._case.id} {len(calls)}"
        if key not in self._shop.hashes:
            self._shop.put_back()
            for call in calls:
                try:
                    self._shop.call(call.tool, call.arguments)
                except Failed:
                    continue  # as in the package: the truth goes on after an error
            self._shop.hashes[key] = self._shop.tools.db.get_hash()
        return self._shop.hashes[key]


class OneShop:
    """The simulator of this process. Loading or copying it takes long, so it is put back."""

    def __init__(self) -> None:
        self.tools = RetailAgentTools()
        self.tools.initialize()
        self.hashes: dict[str, str] = {}
        self.made = {make.__name__: make() for make in all_retail_tools}
        self._untouched = True
        self._first = {
            table: {key: each.model_dump_json() for key, each in self._table(table).items()}
            for table in TABLES
        }
        store.tools = self.tools

    def _table(self, table: str) -> dict[str, Any]:
        return getattr(self.tools.db, table)

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        self._untouched = False
        try:
            self.made[tool](**arguments).send(None)  # async in form only: it never waits
        except StopIteration as done:
            return done.value
        except ToolError as error:
            raise Failed(str(error)) from None
        raise RuntimeError(f"{tool} has waited")

    def changed(self) -> list[tuple[str, str]]:
        """Tables and keys of the records that are no longer as they were."""
        if self._untouched:
            return []
        return [
            (table, key)
            for table in TABLES
            for key, each in self._table(table).items()
            if each.model_dump_json() != self._first[table].get(key)
        ]

    def changes(self) -> dict[str, Any]:
        """The changed records as the data has them."""
        return {
            f"{table}/{key}": self._table(table)[key].model_dump(mode="json")
            for table, key in self.changed()
        }

    def put_back(self) -> None:
        """As it was at the beginning."""
        for table, key in self.changed():
            records = self._table(table)
            records[key] = type(records[key]).model_validate_json(self._first[table][key])
        self._untouched = True


class Tau2:
    """The given retail tasks."""

    name = "tau2"

    def __init__(self, folder: Path) -> None:
        self._shop = OneShop()
        self.offers = {name: _offer(name, execute) for name, execute in self._shop.made.items()}
        self.cases = [self._case(raw) for raw in lines(folder / "tau2_retail_oracle.jsonl")]

    def world(self, case: Case) -> ShopWorld:
        return ShopWorld(case, self._shop)

    def _case(self, raw: dict[str, Any]) -> Case:
        calls = [
            Call(
                c["tool"],
                c["arguments"],
                c["result"],
                error=c["error"] or "",
                known=not c["not_replayed"],
            )
            for c in raw["calls"]
        ]
        told = " ".join(raw["communicate_info"] or [])
        turn = Turn(
            user=f"{raw['user_request']}\n{raw['user_knows'] or ''}",
            replies=tuple((call,) for call in calls),
            answer=f"{raw['id']} is done. {told}",
            offered=tuple(self.offers),
        )
        return Case(id=raw["id"].replace("/", "."), turns=(turn,), raw=raw)


def _offer(name: str, execute: Any) -> Offer:
    """The schema of a tool, from the signature the package gives it."""
    hints = get_type_hints(execute)
    parameters = inspect.signature(execute).parameters
    properties = {each: TypeAdapter(hints[each]).json_schema() for each in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return Offer(name, inspect.getdoc(execute) or name, schema)
