"""Files as input: pictures, pages and addresses go in with the task, and bad ones leave no run."""

import asyncio

import pytest
from tests.engine.kit import Recorder, runtime

from cairn import Blob, ConfigError, Text, Uri
from cairn.core.events import RunCreated
from cairn.engine.given import FILES_BYTES

PNG = b"\x89PNG\r\n\x1a\n\0\xff"


def parts_seen(given, store=":memory:"):
    """The parts the model was sent for this input, and those the journal holds."""

    async def main():
        model = Recorder("ok")
        async with runtime(model, store=store) as rt:
            run = await rt.run_async("a", given, id="r1")
            assert run.status == "completed"
            again = await rt.run_async("a", given, id="r1")
            assert again.text == "ok"
            entries = await rt.store.read("r1")
        created = entries[0].event
        assert isinstance(created, RunCreated)
        return model.last.messages[0].parts, created.input

    return asyncio.run(main())


def test_a_path_goes_in_as_the_files_bytes_with_its_media_type_and_name(tmp_path):
    picture = tmp_path / "Grundriß.png"
    picture.write_bytes(PNG)
    sent, kept = parts_seen(["What is it?", picture], store=tmp_path / "cairn.db")
    assert sent == kept
    assert sent == (
        Text("What is it?"),
        Blob(mime_type="image/png", content=PNG, name="Grundriß.png"),
    )


def test_a_large_file_comes_back_from_the_journal_byte_for_byte(tmp_path):
    pages = Blob(mime_type="application/pdf", content=bytes(range(256)) * 2_000)
    sent, kept = parts_seen(["Read.", pages], store=tmp_path / "cairn.db")
    assert sent[1] == kept[1] == pages


def test_an_address_goes_in_as_it_is():
    sent, _ = parts_seen(["What is it?", Uri(uri="https://example.org/a.png")])
    assert sent[1] == Uri(uri="https://example.org/a.png")


def test_a_file_of_unknown_kind_is_plain_bytes(tmp_path):
    odd = tmp_path / "odd"
    odd.write_bytes(b"\0\1")
    sent, _ = parts_seen([odd])
    assert sent[0].mime_type == "application/octet-stream"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["x", Uri(uri="file:///etc/passwd")], "neither text nor a file"),
        ([Uri(uri="javascript:alert(1)")], "neither text nor a file"),
        ([Blob(mime_type="png", content=PNG)], "neither text nor a file"),
        ([Blob(mime_type="image/png\r\nx: y", content=PNG)], "neither text nor a file"),
        ([b"bytes"], "neither text nor a file"),
        ([Blob(mime_type="image/png", content=b"x" * (FILES_BYTES + 1))], "larger than 20 MiB"),
    ],
)
def test_what_is_no_file_is_refused_with_the_fix_and_leaves_no_run(given, said):
    async def main():
        async with runtime(["ok"]) as rt:
            with pytest.raises(ConfigError, match=said) as caught:
                await rt.run_async("a", given)
            assert caught.value.field == "input"
            assert caught.value.fix
            assert await rt.runs_async() == []

    asyncio.run(main())


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    async def main():
        async with runtime(["ok"]) as rt:
            for path in (tmp_path / "gone.png", tmp_path):
                with pytest.raises(ConfigError, match="cannot be read"):
                    await rt.run_async("a", [path])
            assert await rt.runs_async() == []

    asyncio.run(main())


def test_another_file_under_the_same_id_is_another_task(tmp_path):
    from cairn import RunConflict

    async def main():
        async with runtime(["ok"], store=tmp_path / "cairn.db") as rt:
            await rt.run_async("a", [Blob(mime_type="image/png", content=b"1")], id="r1")
            with pytest.raises(RunConflict):
                await rt.run_async("a", [Blob(mime_type="image/png", content=b"2")], id="r1")

    asyncio.run(main())
