"""The options that a command needs which people are told to type, to work on the same store."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from cairn.cli.place import Place, file_of, store_file
from cairn.core.messages import Record
from cairn.ports import Store

SOME_APP = " --app module:name"


class Hints(Record):
    """What belongs behind a command; empty where the command finds the place by itself.

    Args:
        decide: Behind one that needs the store alone, as `approve`.
        drive: Behind one that needs the application, as `retry`; a made-up name if none is known.
        resume: Behind one that is of use with and without an application.
        elsewhere: Behind one for an application that has yet to be found.
    """

    decide: str = ""
    drive: str = ""
    resume: str = ""
    elsewhere: str = ""


def hints_for(place: Place, store: Store) -> Hints:
    """The options for this place, where a command has opened this store."""
    app = place.app or place.settings.app
    named = f" --app {shlex.quote(app)}" if app else ""
    typed = f" --app {shlex.quote(place.app)}" if place.app else ""
    file = file_of(store)
    path = place.store or ("" if is_found(file, place) else shown_path(file))
    at = f" --store {shlex.quote(path)}" if path else ""
    kept = f" --store {shlex.quote(place.store)}" if place.store else ""
    decide = at if file or place.store else named  # a store without a file is the application's
    drive = f"{kept}{typed}" if app else f"{kept}{SOME_APP}"
    return Hints(
        decide=decide,
        drive=drive,
        resume=drive if app else decide,
        elsewhere=f"{at}{SOME_APP}",
    )


def shown_path(file: str) -> str:
    """A file's path as it is typed here: short if it is below this folder."""
    here = Path.cwd().resolve()
    path = Path(file)
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


def is_found(file: str, place: Place) -> bool:
    """Whether a command without `--store` and `--app` opens this file, or there is no file.

    Of an application's own store that is only said where it is `./cairn.db`: a hint that names
    the file needs no code.
    """
    settings = place.settings
    others = settings.app and settings.app != place.app and not settings.store_is_named
    if place.app and others:  # its store is looked at, whatever file is here
        return not file
    found = store_file(settings.store)
    return not file or (found is not None and os.path.realpath(found) == file)
