"""`models`: which providers can be used here and what is missing, and what one model costs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.outcome import print_json
from cairn.cli.paint import console, styled
from cairn.cli.plain import visible_line
from cairn.cli.say import print_line
from cairn.core.limits import WORST_CASE, Rates
from cairn.models import PROVIDERS, check_model
from cairn.models.catalogue import Facts, Standing, facts, standings
from cairn.models.endpoints import ENDPOINTS

FIRST = frozenset({"openai", "anthropic", "google", "local"})
"""Providers that have a line of their own, whatever is set here."""
SHOWN_MODELS = 6


def models(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A provider, or provider:name for one model.")
    ] = "",
    *,
    all_of_them: Annotated[
        bool, typer.Option("--all", help="Every provider, and every model that servers list.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Say which models can be used here, and what others lack.

    Packages, keys and addresses are looked for; servers of your own are asked on their port for
    what they have. No other provider is asked, and no key is shown. With provider:name it is
    told what that model costs, how much it takes, and whether it could be asked: if not, the
    exit code is 1.
    """
    if name and name not in PROVIDERS:
        check_model(name, "NAME")
        raise typer.Exit(_one(facts(name), json=json))
    found = standings([name]) if name else standings()
    if json:
        for each in found:
            print_json(msgspec.structs.asdict(each))
        return
    whole = all_of_them or bool(name)
    rest = [] if whole else [s for s in found if not _is_shown(s)]
    _print_table([s for s in found if s not in rest], whole=whole)
    keyless = [s.provider for s in rest if not ENDPOINTS[s.provider].free_key]
    if keyless:
        print_line(f"with a key also: {', '.join(keyless)}")
    silent = [s for s in rest if s.provider not in keyless]
    usual = [s.provider for s in silent if ENDPOINTS[s.provider].base_url]
    if usual:
        print_line(f"servers of your own, if they run: {', '.join(usual)}")
    for each in silent:
        if each.provider not in usual:
            where = ENDPOINTS[each.provider].url_key
            print_line(f"any other server: {each.provider}, if {where} says where it is")
    if rest:
        print_line("what each needs: cairn models --all · about one model: cairn models NAME")


def _is_shown(each: Standing) -> bool:
    return each.state == "usable" or each.begun or each.provider in FIRST


def _print_table(found: list[Standing], *, whole: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("provider", "here", "format", "where", "models, key, what to do"):
        table.add_column(title, overflow="fold")
    for each in found:
        mark = styled("completed" if each.state == "usable" else "waiting")
        mark.plain = each.state
        source = f" ({each.address_from})" if each.address_from else ""
        table.add_row(
            each.provider,
            mark,
            each.wire,
            Text(visible_line(each.address, 200) + source),
            Text(_remarks(each, whole=whole)),
        )
    console(table=True).print(table)


def _remarks(each: Standing, *, whole: bool) -> str:
    """What it has, where its key comes from, and what to do about what is missing."""
    shown = each.models if whole else each.models[:SHOWN_MODELS]
    more = f" and {len(each.models) - len(shown)} more" if len(each.models) > len(shown) else ""
    said = [", ".join(visible_line(name, 80) for name in shown) + more] if shown else []
    if each.key_from:
        said.append(f"key from {each.key_from}")
    return "; ".join([*said, *each.todo])


# ---------------------------------------------------------------- one model


def _one(known: Facts, *, json: bool) -> int:
    if json:
        print_json(_object(known))
    else:
        _print_facts(known)
    return exits.REFUSED if known.problem else exits.DONE


def _object(known: Facts) -> dict[str, Any]:
    """The facts, with prices as they are counted: micro-USD per million tokens."""
    return {**msgspec.structs.asdict(known), "usable": not known.problem}


def _print_facts(known: Facts) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for title, lines in _told(known).items():
        for number, text in enumerate(lines):
            table.add_row("" if number else title, Text(visible_line(text, 400)))
    console(table=True).print(table)


def _told(known: Facts) -> dict[str, list[str]]:
    told = {"model": [known.name]}
    if known.address:
        told["where"] = [known.address]
    if known.window:
        told["price"] = _price(known)
        assumed = "" if known.window_known else " (nobody says; RemoteModel(…, window=…) sets it)"
        told["window"] = [f"{known.window:,} tokens{assumed}"]
        told["output"] = [f"at most {known.max_output:,} tokens a reply"]
    told["tools"] = [
        "called (RemoteModel(…, takes_tools=False) is for a model that cannot)"
        if known.takes_tools
        else "not called: it answers with one JSON action"
    ]
    told["check"] = [known.problem or "it could be asked: cairn doctor --model " + known.name]
    return told


def _price(known: Facts) -> list[str]:
    price = known.price
    if price is None:
        counted = f"counted at {_rates(known.counted_at)} ({WORST_CASE.version}), unless "
        counted += "RemoteModel(…, price=…) or Runtime(…, unknown_price=…) says otherwise"
        return [f"unknown: {known.price_unknown or 'nobody says it'}", counted]
    if price.free:
        return [f"free{f', as {price.version} has it' if price.version else ''}"]
    tiers = [
        f"{_rates(tier)}, in requests with over {tier.above:,} tokens of input"
        for tier in sorted(price.tiers, key=lambda each: each.above)
    ]
    return [f"{_rates(price)}, per million tokens", *tiers, f"from {price.version}"]


def _rates(rates: Rates) -> str:
    named = {
        "input": rates.input,
        "cached": rates.cached,
        "written to the cache": rates.cache_write,
        "output": rates.output,
    }
    if rates.cache_write in {None, rates.input}:
        del named["written to the cache"]
    return ", ".join(f"{title} {_usd(rate)}" for title, rate in named.items() if rate is not None)


def _usd(rate: int) -> str:
    """Micro-USD as dollars, exact: `$1.25`, `$0.075`, `$15`."""
    whole, part = divmod(rate, 1_000_000)
    return f"${whole:,}" if not part else f"${whole:,}.{part:06d}".rstrip("0")
