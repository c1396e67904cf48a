"""The public names: one list, each importable, each where the table says."""

import importlib

import cairn


def test_the_list_of_public_names_and_the_table_of_their_homes_agree():
    named = {name for names in cairn._HOMES.values() for name in names}
    assert sorted({*named, "__version__"}) == sorted(cairn.__all__)


def test_every_public_name_is_what_its_home_defines():
    for home, names in cairn._HOMES.items():
        for name in names:
            assert getattr(cairn, name) is getattr(importlib.import_module(home), name)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(cairn, "no_such_name")
    assert "Runtime" in dir(cairn)
