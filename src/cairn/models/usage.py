"""Usage as providers count it, brought to buckets that share no token."""

from __future__ import annotations

from cairn.core.limits import Usage


def disjoint(
    total_input: int,
    cached: int,
    cache_write: int,
    total_output: int,
    reasoning: int,
    *,
    cached_inside: bool,
    reasoning_inside: bool = True,
) -> Usage:
    """The same tokens, each counted in one bucket.

    Numbers that contradict each other (more cached than there was input) are refused by nobody:
    the part is then taken to lie outside the whole, which counts at least as much as any other
    reading. Negative numbers count as 0. A provider that said nothing at all has no usage to give
    here; zeros would hide that.

    Args:
        total_input: Tokens of input as the provider states them.
        cached: Input tokens read from its cache.
        cache_write: Input tokens written to its cache.
        total_output: Tokens of output as the provider states them.
        reasoning: Output tokens spent on thinking.
        cached_inside: Whether `total_input` holds `cached` and `cache_write` (OpenAI, Google) or
            they come on top of it (Anthropic).
        reasoning_inside: The same of `total_output` and `reasoning`.
    """
    cached, cache_write, reasoning = max(cached, 0), max(cache_write, 0), max(reasoning, 0)
    return Usage(
        input_tokens=_rest(total_input, cached + cache_write, inside=cached_inside),
        cached_tokens=cached,
        cache_write_tokens=cache_write,
        output_tokens=_rest(total_output, reasoning, inside=reasoning_inside),
        reasoning_tokens=reasoning,
    )


def _rest(whole: int, part: int, *, inside: bool) -> int:
    whole = max(whole, 0)
    return whole - part if inside and part <= whole else whole
