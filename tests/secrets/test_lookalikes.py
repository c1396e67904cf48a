"""What looks like a key is taken out though nobody registered it; a look-alike stays."""

import base64
import hashlib
import json
import uuid

import pytest

from cairn.core.keylike import KINDS, MARKER
from cairn.core.messages import Blob, CallPart, Text
from cairn.governance.secrets import Secrets

SEAL = Secrets().of()


def _chance(seed: str, length: int) -> str:
    """Letters and digits that nobody would write, the same in every run, in no key's own list."""
    made = base64.b64encode(hashlib.sha512(seed.encode()).digest() * 4).decode()
    return "".join(c for c in made if c.isalnum())[:length]


def _jwt() -> str:
    parts = ('{"alg":"HS256","typ":"JWT"}', '{"sub":"12","name":"Ann"}')
    head, body = (base64.urlsafe_b64encode(p.encode()).decode().rstrip("=") for p in parts)
    return f"{head}.{body}.{_chance('jwt', 43)}"


def _pem(kind: str = "RSA ", breaks: str = "\n") -> str:
    body = breaks.join(_chance(f"pem{n}", 64) for n in range(4))
    return f"-----BEGIN {kind}PRIVATE KEY-----{breaks}{body}{breaks}-----END {kind}PRIVATE KEY-----"


KEYS = {
    "api-key": [f"sk-{_chance('a', 48)}", f"sk-proj-{_chance('b', 40)}", f"gsk_{_chance('g', 52)}"],
    "google-key": [f"AIza{_chance('c', 35)}"],
    "github-token": [f"ghp_{_chance('d', 36)}", f"github_pat_{_chance('e', 60)}"],
    "aws-key": ["AKIA" + _chance("f", 40).upper()[:16]],
    "slack-token": [f"xoxb-2147483647-2147483648-{_chance('h', 24)}"],
    "hf-token": [f"hf_{_chance('i', 34)}"],
    "jwt": [_jwt()],
    "private-key": [_pem(), _pem(""), _pem("OPENSSH ", "\\n")],
    "bearer-token": [f"Authorization: Bearer {_chance('k', 40)}"],
    "stripe-key": [f"sk_live_{_chance('l', 24)}", f"whsec_{_chance('m', 32)}"],
    "gitlab-token": [f"glpat-{_chance('n', 20)}"],
    "npm-token": [f"npm_{_chance('o', 36)}"],
    "pypi-token": [f"pypi-{_chance('p', 80)}"],
    "sendgrid-key": [f"SG.{_chance('q', 22)}.{_chance('r', 43)}"],
    "credential": [
        f"password={_chance('s', 16)}",
        f'api_key: "{_chance("t", 32)}"',
        f"DB_PASSWORD='{_chance('u', 20)}'",
        f"client-secret => {_chance('v', 32)}",
        "aws_secret_access_key = " + _chance("w", 40),
        "apiKey=" + hashlib.md5(b"x", usedforsecurity=False).hexdigest(),
        "Authorization: Basic " + base64.b64encode(f"u:{_chance('x', 20)}".encode()).decode(),
    ],
    "url-password": [f"postgres://app:{_chance('y', 18)}@db.local:5432/shop"],
    "encoded-key": [base64.b64encode(f"export KEY=sk-{_chance('z', 40)}".encode()).decode()],
}

ROWS = [
    "abcdefg",
    "1234567",
    "GFEDCBA",
    "0000000",
    "fedcba",
    "deadbeef",
    "abcdefghijk",
    "56789012345",
]
"""What chance writes now and then, and who makes up an example more often."""

LOOKALIKES = [
    "sk-1234567890abcdef1234567890abcdef",
    "sk-abcdefghijklmnopqrstuvwxyz123456",
    "sk-proj-abcdefghijklmnop1234567890ABCDEFGH",
    "sk-abc1234567def890ghi",
    "sk-deadbeefdeadbeefdeadbeef",
    "sk_test_abcdefghijklmnop1234567890",
    "ghp_1234567890abcdefghijklmnopqrstuvwxyzAB",
    "xoxb-123456789012-1234567890123-abcdefghijklmnopqrstuvwx",
    "AKIA1234567890ABCDEF",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "hf_0000000000000000000000000000",
    "ghp_example1234567890a8Fk2mQ9xZ4rT7vB1nC",
    "sk-...",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxx",
    "sk-your-api-key-goes-here",
    "sk-learn-2024-conference-paper",
    "the sk-ordinary-hyphenated-words-in-slovak",
    "export OPENAI_API_KEY=sk-...",
    "OPENAI_API_KEY=<your key>",
    "api_key=os.environ['OPENAI_API_KEY']",
    "api_key = settings.stripe_secret_key",
    "api_key=$STRIPE_API_KEY_PRODUCTION_2",
    "password: hunter2",
    "password: correct-horse-battery-staple",
    "password=changeme1234567",
    "The password must be at least twelve characters long.",
    "secret: projects/12345/secrets/db-pass1/versions/latest7",
    "secret_name=prod-db-primary-01",
    "password_hash algorithm: argon2id",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "github_pat_is_the_prefix_of_fine_grained_tokens",
    "Bearer authentication-is-described-below",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $ACCESS_TOKEN_FROM_LOGIN",
    "Basic understanding-of-the-subject is enough",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIB" + "A" * 60 + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + _chance("pub", 64) + "\n-----END PUBLIC KEY-----",
    "eyJhbGciOi... is how a JWT begins",
    "eyJ.eyJ.sig",
    hashlib.sha256(b"a").hexdigest(),
    hashlib.sha1(b"a", usedforsecurity=False).hexdigest(),
    hashlib.md5(b"a", usedforsecurity=False).hexdigest(),
    "sha256:" + hashlib.sha256(b"b").hexdigest(),
    "integrity sha512-" + base64.b64encode(hashlib.sha512(b"c").digest()).decode(),
    "commit 8238e3e5f0b2c7d94a1b6e3f5c8d7a9b0e1f2a3b",
    str(uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
    "token=" + str(uuid.UUID(int=0xF47AC10B58CC4372A5670E02B2C3D479)),
    "secret = f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "next_page_token=CAUQAA1b2c3d4e5f6g7h8",
    "pageToken: " + _chance("page", 40),
    "call_" + _chance("call", 24),
    "toolu_" + _chance("toolu", 24),
    "req_" + _chance("req", 24),
    "chatcmpl-" + _chance("cmpl", 29),
    "https://example.org/path/to/" + _chance("path", 40),
    "https://user@example.org:8080/a1b2c3d4e5f6",
    "s3://bucket/prefix/part-00000-a1b2c3d4.snappy.parquet",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 4).decode(),
    "The tokenizer has max_token=32768 and vocab_size=128256 tokens",
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-Ab12Cd",
    "password: vault:kv/data/shop7a8b9c0d#password",
    "node_modules/.pnpm/npm_config@1.0.0/node_modules/pypi-helper",
    "GOCSPX- is how client secrets of Google begin; xoxb- those of Slack",
    "hf_hub_download(repo_id=name, filename=file)",
    "k_test_fold_3 and k_live_migration_checklist",
    "ISBN 978-3-16-148410-0, IBAN DE89370400440532013000",
    "class AbstractSingletonProxyFactoryBeanSecretKeyProvider:",
]


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, several in KEYS.items() for t in several])
def test_what_looks_like_a_key_is_kept_nowhere(kind: str, text: str) -> None:
    for written in (text, f"it is {text} so", f"a\n{text}\nb"):
        shown = SEAL.text(written)
        assert f"[redacted {kind}]" in shown
        assert SEAL.text(shown) == shown
        longest = max(text.replace("\\n", " ").replace(":", " ").replace("=", " ").split(), key=len)
        assert longest.strip("\"'") not in shown


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    "beginning", ["sk-", "sk-proj-", "ghp_", "AIza", "hf_", "sk_live_", "glpat-", "gsk_"]
)
def test_a_key_of_a_vendor_is_one_whatever_chance_put_in_order(beginning: str, row: str) -> None:
    rest = _chance("row", 36)
    for at in (0, 5, 18, 36):
        key = f"{beginning}{rest[:at]}{row}{rest[at:]}"
        shown = SEAL.text(f"it is {key} so")
        assert rest[:5] not in shown
        assert rest[-5:] not in shown
        assert "[redacted " in SEAL.text(base64.b64encode(f"export K={key}".encode()).decode())


@pytest.mark.parametrize("at", [0, 4, 9])
def test_a_key_of_aws_is_one_whatever_chance_put_in_order(at: int) -> None:
    rest = "QZ7R2MKP4"
    assert SEAL.text(f"AKIA{rest[:at]}1234567{rest[at:]}") == "[redacted aws-key]"


def test_every_kind_has_a_key_that_shows_it() -> None:
    assert set(KEYS) == set(KINDS)


@pytest.mark.parametrize("text", LOOKALIKES)
def test_what_only_looks_like_a_key_stays(text: str) -> None:
    assert SEAL.text(text) == text
    assert SEAL.text(f"see: {text}\nand so on") == f"see: {text}\nand so on"
    assert SEAL.json(json.dumps({"a": [text]})) == json.dumps({"a": [text]})


def test_there_are_enough_of_them() -> None:
    assert len(LOOKALIKES) >= 40


def test_a_password_is_known_by_its_name_in_json_too() -> None:
    value = _chance("named", 20)
    hidden = SEAL.json(json.dumps({"db": {"password": value, "user": "app", "port": 5432}}))
    assert json.loads(hidden) == {
        "db": {"password": "[redacted credential]", "user": "app", "port": 5432}
    }
    plain = json.dumps({"password": "hunter2", "secret": None, "api_key": "${API_KEY}"})
    assert SEAL.json(plain) == plain


def test_the_bytes_of_images_and_what_a_provider_signed_are_not_searched() -> None:
    key = KEYS["github-token"][0]
    image = Blob(mime_type="image/png", content=b"\x89PNG" + key.encode())
    assert SEAL.value((image,)) == (image,)
    signed = Text("so", opaque=key)
    assert SEAL.value(signed) == signed


def test_a_key_over_two_parts_of_a_message_is_taken_out_of_both() -> None:
    key = KEYS["api-key"][0]
    hidden = SEAL.value((Text(f"it is {key[:20]}"), Text(f"{key[20:]} ok")))
    assert [part.content for part in hidden] == ["it is [redacted api-key]", " ok"]


def test_ids_of_calls_are_left_alone() -> None:
    part = CallPart(id="c1", name="t", alias=f"sk-{_chance('alias', 40)}")
    assert SEAL.value(part) == part


def test_the_marker_of_a_kind_is_one_and_other_brackets_are_none() -> None:
    assert all(MARKER.fullmatch(f"[redacted {kind}]") for kind in KINDS)
    assert not MARKER.search("[redacted] [redacted by the court] [redacted name]")
