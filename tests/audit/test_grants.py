"""What the audit says of standing grants: each line names the tool, and can be found by it."""

from pathlib import Path

from tests.audit.conftest import Command, runtime

from cairn import call


def test_every_line_about_a_grant_names_its_tool(cairn: Command, tmp_path: Path) -> None:
    script = [call("refund", order="7", cents=400), "done"]
    with runtime(tmp_path / "g.db", script) as rt:
        n = rt.grant("refund", uses=1, by="ada")
        assert rt.run("shop", "go", id="r").status == "completed"
        rt.revoke_grant(n, "enough", by="ada")
    store = ("--store", str(tmp_path / "g.db"))
    found = cairn("audit", "--json", "--tool", "refund", *store).objects
    told = [line["decision"] for line in found if line["run"] == "store"]
    assert told == ["grant made", "grant used", "grant revoked"]
    (used,) = cairn("audit", "--json", "--decision", "grant used", *store).objects
    assert (used["tool"], used["rule"], used["detail"]) == ("refund", "grant 1", "r/c1")
