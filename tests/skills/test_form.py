"""The form of skills: what may be used, and how every fault is said, with its file and line."""

import os
from pathlib import Path

import pytest

from cairn import Agent, ConfigError, Scripted, Skills
from cairn.skills import SkillsError, skills_index

GOOD = "---\nname: {name}\ndescription: What it is for.\n---\n\n# How\n"


def skill(folder: Path, name: str, text: str = GOOD, **files: bytes) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(text.replace("{name}", name), encoding="utf-8")
    for file, data in files.items():
        (place / file).write_bytes(data)
    return place


def faults(*folders: Path) -> list[tuple[str, int, str, str]]:
    with pytest.raises(SkillsError) as raised:
        Skills(*folders)
    assert isinstance(raised.value, ConfigError)
    return [(Path(f.file).name, f.line, f.field, f.problem) for f in raised.value.faults]


def test_a_folder_of_skills_and_the_folder_of_one_skill_are_both_taken(tmp_path: Path) -> None:
    skill(tmp_path, "b-two")
    one = skill(tmp_path, "a1")
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("not a skill")
    assert [each.name for each in Skills(tmp_path)] == ["a1", "b-two"]
    assert [each.name for each in Skills(one)] == ["a1"]
    assert [each.name for each in Skills(str(one), tmp_path)] == ["a1", "b-two"]


def test_a_path_of_the_file_itself_is_told_to_be_its_folder(tmp_path: Path) -> None:
    place = skill(tmp_path, "a1")
    with pytest.raises(ConfigError, match=r"this is a file, and no folder. Give its folder"):
        Skills(place / "SKILL.md")


def test_all_fields_of_the_form_are_read(tmp_path: Path) -> None:
    text = """---
name: {name}
description: >
  Fill forms.
  Use it for PDFs.
license: Apache-2.0
compatibility: Needs pdftk
metadata:
  author: example
  version: 1.10
  flag: true
allowed-tools: Bash(git:*) Read
model: large
---
The body.
"""
    skill(tmp_path, "forms", text)
    skill(
        tmp_path,
        "other",
        GOOD.replace("---\n\n", "allowed-tools:\n  - Read\n  - Bash(jq:*)\n---\n"),
    )
    forms, other = Skills(tmp_path)
    assert forms.front.description == "Fill forms. Use it for PDFs."
    assert (forms.front.license, forms.front.compatibility) == ("Apache-2.0", "Needs pdftk")
    assert forms.version == "1.10"  # as it is written: no number
    assert forms.front.metadata == {"author": "example", "version": "1.10", "flag": "true"}
    assert forms.front.allowed_tools == ("Bash(git:*)", "Read")
    assert forms.front.unknown == ("model",)
    assert other.front.allowed_tools == ("Read", "Bash(jq:*)")


def test_the_index_is_one_line_a_skill_sorted_and_the_same_whatever_the_order(
    tmp_path: Path,
) -> None:
    skill(tmp_path / "x", "zeta")
    skill(tmp_path / "y", "alpha")
    one, other = Skills(tmp_path / "x", tmp_path / "y"), Skills(tmp_path / "y", tmp_path / "x")
    assert one.index == other.index == skills_index(one)
    assert one.hash == other.hash
    lines = one.index.splitlines()
    assert lines[1:] == ["- alpha: What it is for.", "- zeta: What it is for."]
    assert "load_skill" in lines[0]
    assert Skills().index == Skills().hash == ""


BAD = {
    "no front matter": ("# Hello\n", 1, "", "there is no front matter"),
    "never closed": ("---\nname: {name}\n", 1, "", "the front matter has no end"),
    "a colon": (
        "---\nname: {name}\ndescription: d: e\n---\n",
        3,
        "",
        "a text with ': ' in it stands without quotes",
    ),
    "empty": ("---\n---\n", 1, "", "the front matter is empty"),
    "bad yaml": ("---\nname: {name}\ndescription: [a\n---\n", 4, "", "expected"),
    "a tab": ("---\nname: {name}\n\tdescription: x\n---\n", 3, "", "found character"),
    "no name": ("---\ndescription: x\n---\n", 2, "name", "it is missing"),
    "no description": ("---\nname: {name}\n---\n", 2, "description", "it is missing"),
    "an empty one": ("---\nname: {name}\ndescription: ''\n---\n", 3, "description", "it is empty"),
    "a number": ("---\nname: 7\ndescription: x\n---\n", 2, "name", "it is a number, not text"),
    "a list": ("---\n- name\n---\n", 2, "", "it is a list"),
    "other name": ("---\nname: b\ndescription: x\n---\n", 2, "name", "the folder is called a"),
    "twice": (
        "---\nname: {name}\nname: {name}\ndescription: x\n---\n",
        3,
        "name",
        "it stands twice, first in line 2",
    ),
    "too long": (
        f"---\nname: {{name}}\ndescription: {'x' * 1025}\n---\n",
        3,
        "description",
        "it has 1,025 characters",
    ),
    "compatibility": (
        f"---\nname: {{name}}\ndescription: x\ncompatibility: {'x' * 501}\n---\n",
        4,
        "compatibility",
        "it has 501 characters",
    ),
    "metadata": (
        "---\nname: {name}\ndescription: x\nmetadata:\n  a: [1]\n---\n",
        5,
        "metadata.a",
        "it is a list",
    ),
    "an alias": (
        "---\nname: {name}\ndescription: &a x\nlicense: *a\n---\n",
        3,
        "",
        "anchors and aliases are not taken",
    ),
    "a tag": (
        "---\nname: {name}\ndescription: !!python/object:os.system x\n---\n",
        3,
        "",
        "is not taken",
    ),
}


@pytest.mark.parametrize("which", BAD)
def test_what_is_wrong_is_said_with_its_file_line_and_field(which: str, tmp_path: Path) -> None:
    text, line, field, said = BAD[which]
    skill(tmp_path, "a", text)
    found = faults(tmp_path)
    assert ("SKILL.md", line, field) in [each[:3] for each in found]
    assert any(said in each[3] for each in found), found


@pytest.mark.parametrize("name", ["Upper", "-a", "a-", "a--b", "a_b", "a b", "ä", "a.b", "x" * 65])
def test_names_are_lower_case_with_single_hyphens_and_not_too_long(
    name: str, tmp_path: Path
) -> None:
    skill(tmp_path, name)
    assert any("is no name" in said for *_, said in faults(tmp_path))


def test_everything_that_is_wrong_in_all_skills_is_said_at_once(tmp_path: Path) -> None:
    skill(tmp_path, "a", "no\n")
    skill(tmp_path, "b", "---\nname: c\n---\n")
    with pytest.raises(SkillsError) as raised:
        Agent("x", Scripted([]), skills=[tmp_path])
    said = str(raised.value)
    assert len(raised.value.faults) == 3
    assert said.count("Agent('x').skills") == 3
    assert f"{tmp_path / 'b' / 'SKILL.md'}:2: name" in said


def test_two_skills_of_one_name_are_refused(tmp_path: Path) -> None:
    skill(tmp_path / "x", "same")
    skill(tmp_path / "y", "same")
    assert any(
        "another skill is called same" in s for *_, s in faults(tmp_path / "x", tmp_path / "y")
    )
    one, other = Skills(tmp_path / "x"), Skills(tmp_path / "y")
    with pytest.raises(ConfigError, match="two skills are called same"):
        Agent("x", Scripted([]), skills=[one, other])
    assert len(Agent("x", Scripted([]), skills=[one, one]).skills) == 1


def test_a_folder_without_skills_or_that_is_none_is_refused(tmp_path: Path) -> None:
    assert any("it holds no skill" in said for *_, said in faults(tmp_path))
    assert any("there is no such folder" in said for *_, said in faults(tmp_path / "gone"))
    (tmp_path / "lower").mkdir()
    (tmp_path / "lower" / "skill.md").write_text(GOOD)
    assert any("is not found like this" in said for *_, said in faults(tmp_path))
    for given in (7, "", [7], [None]):
        with pytest.raises(ConfigError):
            Agent("x", Scripted([]), skills=given)  # type: ignore[arg-type]  # what is wrong


# ---------------------------------------------------------------- hostile folders


def test_links_are_refused_wherever_they_lead(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    skill(outside, "far")
    (tmp_path / "secret").write_text("secret")
    place = skill(tmp_path / "skills", "near")
    (place / "file.md").symlink_to(tmp_path / "secret")
    (place / "folder").symlink_to(outside)
    (tmp_path / "skills" / "far").symlink_to(outside / "far")
    found = faults(tmp_path / "skills")
    assert sorted(name for name, *_ in found) == ["far", "file.md", "folder"]
    assert all("link" in said for *_, said in found)


def test_a_skill_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    place = skill(tmp_path, "near")
    (place / "SKILL.md").rename(tmp_path / "elsewhere.md")
    (place / "SKILL.md").symlink_to(tmp_path / "elsewhere.md")
    (said,) = [said for *_, said in faults(tmp_path)]  # once
    assert "this is a link, and a skill holds plain files only" in said
    assert "(rule" not in said


def test_a_skill_file_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "SKILL.md")
    assert any("never opened" in said for *_, said in faults(tmp_path))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (GOOD.encode("utf-16"), "UTF-16"),
        ("---\nname: a\ndescription: café\n---\n".encode("latin-1"), "no UTF-8"),
        (b"---\nname: a\ndescription: x\0y\n---\n", "no UTF-8"),
        (b"---\nname: a\n---\n" + b"x" * (1 << 20), "is larger than 1,048,576 bytes"),
        (b"---\nname: a\n#" + b"x" * 70_000 + b"\n---\n", "the front matter is too large"),
    ],
)
def test_other_encodings_and_huge_files_are_refused(data: bytes, said: str, tmp_path: Path) -> None:
    place = skill(tmp_path, "a")
    (place / "SKILL.md").write_bytes(data)
    assert any(said in each for *_, each in faults(tmp_path))


def test_windows_lines_and_a_byte_order_mark_are_taken(tmp_path: Path) -> None:
    place = skill(tmp_path, "a")
    text = "\ufeff---\r\nname: a\r\ndescription: 中文 is fine.\r\n---\r\nBody\r\n"
    (place / "SKILL.md").write_bytes(text.encode())
    (found,) = Skills(tmp_path)
    assert found.front.description == "中文 is fine."


def test_a_skill_is_bounded_in_size_number_and_depth(tmp_path: Path) -> None:
    place = skill(tmp_path / "big", "a", data=b"")
    with (place / "data").open("wb") as file:
        file.truncate(9 << 20)
    assert any("8,388,608 bytes at most" in said for *_, said in faults(tmp_path / "big"))
    deep = skill(tmp_path / "deep", "a")
    (deep / "/".join("abcdefghij")).mkdir(parents=True)
    assert any("8 folders deep" in said for *_, said in faults(tmp_path / "deep"))
    many = skill(tmp_path / "many", "a")
    for n in range(1_001):
        (many / str(n)).write_bytes(b"")
    assert any("1,000 files at most" in said for *_, said in faults(tmp_path / "many"))


def test_hidden_files_and_what_python_leaves_behind_are_no_part_of_a_skill(tmp_path: Path) -> None:
    place = skill(tmp_path, "a", script=b"print(1)")
    before = Skills(tmp_path)
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "script.pyc").write_bytes(b"x")
    (place / ".git").mkdir()
    (place / ".git" / "HEAD").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    assert Skills(tmp_path).hash == before.hash
    assert set(Skills(tmp_path)["a"].files) == {"SKILL.md", "script"}


def test_every_change_of_a_file_changes_the_hash(tmp_path: Path) -> None:
    place = skill(tmp_path, "a", script=b"1")
    seen = {Skills(tmp_path).hash}
    for change in (
        lambda: (place / "script").write_bytes(b"2"),
        lambda: (place / "script").rename(place / "other"),
        lambda: (place / "more").write_bytes(b""),
        lambda: (place / "SKILL.md").write_text(GOOD.replace("{name}", "a") + "x"),
    ):
        change()
        seen.add(Skills(tmp_path).hash)
    assert len(seen) == 5
