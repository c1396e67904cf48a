"""Regular expressions from elsewhere, matched in time that grows with the text and no faster.

Python's own go back and try again: `(a+)+b` needs years for forty letters. They cannot be stopped
from outside either, for a search lets no other thread run. These are matched by pydantic's engine,
whose language has nothing that needs a second try.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cairn.tools.text import shorten


@lru_cache(1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text holds the pattern.

    Raises:
        ValueError: the pattern is not of the language; says what it has that is not.
    """
    from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

    rule = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    try:
        validate = SchemaValidator(rule).validate_python
    except SchemaError as error:
        said = str(error).strip().splitlines()[-1].strip().rstrip(".")
        said = said.removeprefix("error: ").removeprefix("SchemaError: ")
        raise ValueError(f"{shorten(pattern, 80)!r}: {said}") from None

    def matches(text: str) -> bool:
        try:
            validate(text)
        except ValidationError:
            return False
        return True

    return matches
