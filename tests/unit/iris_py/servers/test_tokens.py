"""Tokens of doors: made by holders of the secret, and refused for a reason with a name."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.doors.problems import PROBLEMS, DoorRefusal
from iris_py.doors.revocations import RevocationTable, TokenRevocation
from iris_py.doors.rights import Rights
from iris_py.errors import ConfigurationError
from iris_py.servers.tokens import (
    CLOCK_SKEW_S_MAX,
    LIFETIME_S_MAX,
    TIME_S_MAX,
    TOKEN_BYTES_MAX,
    VERIFIED_MAX,
    TokenVerifier,
    make_token,
    read_token,
)
from iris_security import Keyring, Secret

NOW = 1_700_000_000.0
KEYRING = Keyring(Secret(b"k" * 32), network="lab")
KEYS = KEYRING.primary
ID = "0123456789abcdef" * 2
VIEWER = Rights(request=("quotes",), subscribe=("notes.{sub}.>",))
ROLES = {"viewer": VIEWER, "nobody": Rights()}
CLAIMS: dict[str, object] = {"sub": "ann", "exp": int(NOW) + 60, "aud": "lab", "jti": ID, "role": "viewer"}
HEADER: dict[str, object] = {"alg": "HS256", "kid": KEYS.key_id.hex(), "typ": "JWT"}


def verifier() -> TokenVerifier:
    return TokenVerifier(lambda: KEYRING, ROLES)


def token_of(*, lifetime_s: float = 60.0, now: float = NOW, **arguments: Any) -> str:
    return make_token(KEYS, **{"subject": "ann", "role": "viewer", "token_id": ID} | arguments, lifetime_s=lifetime_s, now=now)


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def sign(header: object, claims: object, key: bytes = KEYS.door_key) -> str:
    """Make a token by hand; texts are taken as they are."""
    parts = [encode((each if isinstance(each, str) else json.dumps(each)).encode()) for each in (header, claims)]
    return f"{'.'.join(parts)}.{encode(hmac.digest(key, '.'.join(parts).encode(), 'sha256'))}"


def with_claims(**claims: object) -> str:
    return sign(HEADER, {name: value for name, value in (CLAIMS | claims).items() if value is not None})


def with_header(**header: object) -> str:
    return sign({name: value for name, value in (HEADER | header).items() if value is not None}, CLAIMS)


def refusal_of(token: str, now: float = NOW) -> str:
    with pytest.raises(DoorRefusal) as caught:
        verifier().verify(token, now)
    assert str(caught.value) == PROBLEMS[caught.value.name].title, "no refusal says more than its row of the table"
    assert caught.value.problem.status == 401
    return caught.value.name


def test_a_token_carries_a_role() -> None:
    grant = verifier().verify(token_of(), NOW)
    assert (grant.subject, grant.rights, grant.until, grant.token_id) == ("ann", (VIEWER,), NOW + 60, ID)
    assert grant.allows_topic("subscribe", "notes.ann.>")


def test_a_token_carries_rules() -> None:
    rights = Rights(request=("quotes",), publish=("notes.{sub}",), observe=True)
    grant = verifier().verify(token_of(role="", rights=rights), NOW)
    assert grant.rights == (rights,)
    assert grant.allows_topic("publish", "notes.ann")
    assert not grant.allows_topic("publish", "notes.bob")
    assert grant.observes


def test_a_role_and_rules_both_have_to_allow() -> None:
    grant = verifier().verify(token_of(rights=Rights(request=("*",), survey=("*",))), NOW)
    assert grant.rights == (VIEWER, Rights(request=("*",), survey=("*",)))
    assert grant.allows_cluster("request", "quotes")
    assert not grant.allows_cluster("request", "other")
    assert not grant.allows_cluster("survey", "quotes")


def test_a_token_is_a_usual_one() -> None:
    """Any other program with the key reads it, and may make one."""
    token = token_of(rights=Rights(request=("quotes",), observe=True))
    assert jwt.get_unverified_header(token) == HEADER
    claims = jwt.decode(token, KEYS.door_key, algorithms=["HS256"], audience="lab", options={"verify_exp": False})
    assert claims == {**CLAIMS, "iat": NOW, "iris": {"request": ["quotes"], "observe": True}}
    theirs = jwt.encode({**CLAIMS}, KEYS.door_key, "HS256", {"kid": KEYS.key_id.hex()})
    assert verifier().verify(theirs, NOW).subject == "ann"


def test_all_generations_verify_and_the_sealing_one_signs() -> None:
    old, new = Secret(b"k" * 32), Secret(b"n" * 32)
    rings = [
        Keyring(old, network="lab"),
        Keyring(old, network="lab", accepted=[new]),
        Keyring(new, network="lab", accepted=[old]),
    ]
    for ring in rings:
        checks = TokenVerifier(lambda ring=ring: ring, ROLES)  # type: ignore[misc]
        assert checks.verify(token_of(), NOW).subject == "ann"
    made = make_token(rings[2].primary, subject="ann", role="viewer", lifetime_s=60, now=NOW, token_id=ID)
    assert jwt.get_unverified_header(made)["kid"] == Keyring(new, network="lab").primary.key_id.hex()
    assert TokenVerifier(lambda: rings[1], ROLES).verify(made, NOW).subject == "ann"
    assert refusal_of(made) == "token-unknown-key"


@pytest.mark.parametrize(
    ("token", "name"),
    [
        # The end and the beginning
        (with_claims(exp=int(NOW)), "token-expired"),
        (with_claims(exp=0), "token-expired"),
        (with_claims(exp=int(NOW) + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX + 1), "token-not-yet-valid"),
        (with_claims(exp=TIME_S_MAX), "token-not-yet-valid"),
        (with_claims(nbf=int(NOW) + CLOCK_SKEW_S_MAX + 1), "token-not-yet-valid"),
        # Other networks and keys
        (with_claims(aud="other"), "token-of-other-network"),
        (with_claims(aud="LAB"), "token-of-other-network"),
        (
            make_token(
                Keyring(Secret(b"k" * 32), network="other").primary,
                subject="ann", role="viewer", lifetime_s=60, now=NOW, token_id=ID,
            ),
            "token-of-other-network",
        ),
        (with_header(kid="00" * 8), "token-unknown-key"),
        (with_header(kid=""), "token-unknown-key"),
        (with_header(kid=KEYS.key_id.hex().upper()), "token-unknown-key"),
        (with_header(kid="x" * 4000), "token-unknown-key"),
        (with_header(kid="../../etc/passwd"), "token-unknown-key"),
        (with_header(kid="\ud800"), "token-unknown-key"),
        # Signatures
        (sign(HEADER, CLAIMS, b"x" * 32), "token-bad-signature"),
        (sign(HEADER, CLAIMS, KEYS.link_psk), "token-bad-signature"),
        (sign(HEADER, CLAIMS, b""), "token-bad-signature"),
        (token_of()[:-43] + "A" * 43, "token-bad-signature"),
        (sign(HEADER, CLAIMS, b"x" * 32).replace(encode(json.dumps(CLAIMS).encode()), "e30"), "token-bad-signature"),
        # Algorithms
        (with_header(alg="none"), "token-malformed"),
        (with_header(alg="None"), "token-malformed"),
        (with_header(alg="none").rpartition(".")[0] + ".", "token-malformed"),
        (with_header(alg="hs256"), "token-malformed"),
        (with_header(alg="HS512"), "token-malformed"),
        (with_header(alg="RS256"), "token-malformed"),
        (with_header(alg="EdDSA"), "token-malformed"),
        (with_header(alg=None), "token-malformed"),
        (with_header(alg=["HS256"]), "token-malformed"),
        # The header
        (with_header(kid=None), "token-malformed"),
        (with_header(kid=7), "token-malformed"),
        (with_header(typ="at+jwt"), "token-malformed"),
        (with_header(crit=["b64"], b64=False), "token-malformed"),
        (with_header(jwk={"kty": "oct", "k": encode(b"x" * 32)}), "token-malformed"),
        (with_header(jku="https://example.com/keys"), "token-malformed"),
        (sign("[]", CLAIMS), "token-malformed"),
        (sign("", CLAIMS), "token-malformed"),
        (sign(json.dumps(HEADER)[:-1] + ', "alg": "HS256"}', CLAIMS), "token-malformed"),
        (sign(f'{{"kid": "00", {json.dumps(HEADER)[1:]}', CLAIMS), "token-malformed"),
        # Claims
        *((with_claims(**{name: None}), "token-malformed") for name in CLAIMS),
        *((with_claims(**{name: True}), "token-malformed") for name in CLAIMS),
        *((with_claims(**{name: [value]}), "token-malformed") for name, value in CLAIMS.items()),
        *((with_claims(**{name: {}}), "token-malformed") for name in CLAIMS),
        *((with_claims(**{name: 7}), "token-malformed") for name in CLAIMS if name != "exp"),
        (with_claims(exp=str(int(NOW) + 60)), "token-malformed"),
        (with_claims(exp=-1), "token-malformed"),
        (with_claims(exp=TIME_S_MAX + 1), "token-malformed"),
        (with_claims(exp=10**400), "token-malformed"),
        (with_claims(exp=float("inf")), "token-malformed"),
        (with_claims(exp=float("nan")), "token-malformed"),
        (with_claims(nbf="soon"), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS).replace(str(int(NOW) + 60), "1e999")), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS).replace(str(int(NOW) + 60), "9" * 5000)), "token-malformed"),
        (with_claims(sub=""), "token-malformed"),
        (with_claims(sub="a\nb"), "token-malformed"),
        (with_claims(sub="\ud800"), "token-malformed"),
        (with_claims(sub="x" * 129), "token-malformed"),
        (with_claims(jti=ID[:-1]), "token-malformed"),
        (with_claims(jti=ID.upper()), "token-malformed"),
        (with_claims(role=""), "token-malformed"),
        (with_claims(iris="all"), "token-malformed"),
        (with_claims(iris={"request": "quotes"}), "token-malformed"),
        (with_claims(iris={"request": [7]}), "token-malformed"),
        (with_claims(iris={"observe": 1}), "token-malformed"),
        (with_claims(iris={"serve": ["quotes"]}), "token-malformed"),
        (with_claims(iris={"request": ["iris.doors"]}), "token-malformed"),
        (with_claims(iris={"publish": ["a..b"]}), "token-malformed"),
        (with_claims(iris={"publish": ["\ud800"]}), "token-malformed"),
        (with_claims(iris={"request": ["a"] * 65}), "token-malformed"),
        (with_claims(scope="read"), "token-malformed"),
        (with_claims(**{"\ud800": 1}), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS)[:-1] + ', "sub": "root"}'), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS)[:-1] + ', "iris": {"observe": false, "observe": true}}'), "token-malformed"),
        (sign(HEADER, json.dumps([CLAIMS])), "token-malformed"),
        (sign(HEADER, "null"), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS) + "x"), "token-malformed"),
        (sign(HEADER, "[" * 5000), "token-malformed"),
        (sign(HEADER, '{"sub":' * 700), "token-malformed"),
        # Roles
        (with_claims(role="admin"), "token-unknown-role"),
        (with_claims(role="\ud800"), "token-unknown-role"),
        # The form
        ("", "token-malformed"),
        ("..", "token-malformed"),
        (".".join(["x" * 43] * 3), "token-malformed"),
        (token_of().rpartition(".")[0], "token-malformed"),
        (token_of() + ".x", "token-malformed"),
        (token_of() + "\n", "token-malformed"),
        (" " + token_of(), "token-malformed"),
        (token_of() + "=", "token-malformed"),
        (token_of().replace(".", ". "), "token-malformed"),
        (token_of()[:-1] + "é", "token-malformed"),
        (token_of() + "\ud800", "token-malformed"),
        (sign(HEADER, CLAIMS).replace(".", "=.", 1), "token-malformed"),
        ("x" * (TOKEN_BYTES_MAX + 1), "token-malformed"),
        (sign(HEADER, json.dumps(CLAIMS) + " " * TOKEN_BYTES_MAX), "token-malformed"),
    ],
    ids=lambda value: value if value in PROBLEMS else "",
)  # fmt: skip
def test_a_refusal_has_the_name_of_its_reason(token: str, name: str) -> None:
    assert refusal_of(token) == name


def test_a_token_was_made_when_it_says_and_not_before_its_end_allows() -> None:
    for claims, made_at in (
        ({"iat": NOW - 5}, NOW - 5),
        ({"iat": NOW - 5, "exp": NOW + LIFETIME_S_MAX}, NOW - 5),
        ({"iat": 0, "exp": NOW + LIFETIME_S_MAX}, NOW - CLOCK_SKEW_S_MAX),
        ({}, NOW + 60 - LIFETIME_S_MAX - CLOCK_SKEW_S_MAX),
    ):
        assert verifier().verify(with_claims(**claims), NOW).made_at == made_at
    assert refusal_of(with_claims(iat=NOW + CLOCK_SKEW_S_MAX + 1)) == "token-not-yet-valid"


def test_a_revoked_token_is_refused_also_if_it_was_verified_before() -> None:
    revocations = RevocationTable()
    checks = TokenVerifier(lambda: KEYRING, ROLES, revocations)
    grant = checks.verify(token_of(), NOW)
    assert checks.renew(grant, NOW) == grant
    assert revocations.add(TokenRevocation(ID, NOW + 60), NOW) == "added"
    with pytest.raises(DoorRefusal, match="was revoked"):
        checks.verify(token_of(), NOW)
    with pytest.raises(DoorRefusal, match="was revoked"):
        checks.renew(grant, NOW)
    assert checks.verify(token_of(token_id="f" * 32), NOW).subject == "ann"


def test_a_grant_has_the_present_rights_or_the_reason_of_its_end() -> None:
    rings = [KEYRING]
    checks = TokenVerifier(lambda: rings[0], ROLES)
    own = Rights(request=("*",))
    grant = checks.verify(token_of(rights=own), NOW)
    assert grant.rights == (VIEWER, own)
    checks.replace_roles({"viewer": Rights(observe=True)})
    assert checks.renew(grant, NOW).rights == (Rights(observe=True), own)
    without = checks.verify(token_of(role="", rights=own), NOW)
    checks.replace_roles({})
    assert checks.renew(without, NOW) == without

    def refusal(now: float) -> str:
        with pytest.raises(DoorRefusal) as caught:
            checks.renew(grant, now)
        return caught.value.name

    assert refusal(NOW) == "token-unknown-role"
    rings[0] = Keyring(Secret(b"n" * 32), network="lab")
    assert refusal(NOW) == "token-unknown-key"
    assert refusal(NOW + 60) == "token-expired"


def test_clocks_may_differ_a_little() -> None:
    checks = verifier()
    for token in (
        with_claims(exp=int(NOW) + LIFETIME_S_MAX + CLOCK_SKEW_S_MAX),
        with_claims(nbf=int(NOW) + CLOCK_SKEW_S_MAX),
        with_claims(exp=NOW + 0.5),
    ):
        assert checks.verify(token, NOW).subject == "ann"


def test_ten_thousand_keys_leave_nothing_behind() -> None:
    checks = verifier()
    for number in range(10_000):
        with pytest.raises(DoorRefusal) as caught:
            checks.verify(with_header(kid=f"{number:016x}"), NOW)
        assert caught.value.name == "token-unknown-key"
    assert checks.verified == 0


def test_the_last_bits_of_a_signature_count() -> None:
    """Four texts decode to the same signature, and only one of them is the token."""
    token = token_of()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(token[-1])
    assert last % 4 == 0
    assert {refusal_of(token[:-1] + alphabet[last + more]) for more in (1, 2, 3)} == {"token-malformed"}


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from(["set", "insert", "delete"])), min_size=1)
)
def test_a_changed_token_is_refused(changes: list[tuple[int, int, str]]) -> None:
    token = token_of(rights=Rights(request=("quotes",), observe=True))
    content = bytearray(token.encode())
    for place, value, change in changes:
        at = place % max(1, len(content))
        if change == "insert":
            content.insert(at, value)
        elif content and change == "set":
            content[at] = value
        elif content:
            del content[at]
    changed = content.decode("latin-1")
    if changed != token:
        assert refusal_of(changed) in PROBLEMS


@given(st.text(max_size=200), st.text(max_size=200))
def test_signed_nonsense_is_refused(header: str, claims: str) -> None:
    """Whatever an insider signs."""
    for token in (
        sign(header.encode(errors="replace").decode(), CLAIMS),
        sign(HEADER, claims.encode(errors="replace").decode()),
    ):
        assert refusal_of(token) == "token-malformed"


class TestMemory:
    def test_a_token_is_verified_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        checks, token = verifier(), token_of()
        first = checks.verify(token, NOW)
        monkeypatch.setattr(jwt.PyJWS, "decode", lambda *_, **__: pytest.fail("verified again"))
        assert checks.verify(token, NOW + 59) is first

    def test_its_end_holds(self) -> None:
        checks, token = verifier(), token_of()
        checks.verify(token, NOW)
        with pytest.raises(DoorRefusal) as caught:
            checks.verify(token, NOW + 60)
        assert caught.value.name == "token-expired"
        assert checks.verified == 0

    def test_a_retired_generation_ends_its_tokens(self) -> None:
        old, new = Secret(b"k" * 32), Secret(b"n" * 32)
        rings = [Keyring(new, network="lab", accepted=[old])]
        checks, token = TokenVerifier(lambda: rings[-1], ROLES), token_of()
        checks.verify(token, NOW)
        rings.append(rings[-1].with_generations([new]))
        with pytest.raises(DoorRefusal) as caught:
            checks.verify(token, NOW)
        assert caught.value.name == "token-unknown-key"

    def test_another_role_holds_for_known_tokens(self) -> None:
        checks, token = verifier(), token_of()
        checks.verify(token, NOW)
        checks.replace_roles({"viewer": Rights()})
        assert checks.verify(token, NOW).rights == (Rights(),)
        checks.replace_roles({})
        with pytest.raises(DoorRefusal) as caught:
            checks.verify(token, NOW)
        assert caught.value.name == "token-unknown-role"

    def test_it_is_bounded_and_keeps_the_busy_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("iris_py.servers.tokens.VERIFIED_MAX", 3)
        checks = verifier()
        tokens = [token_of(subject=f"user{number}") for number in range(4)]
        first = checks.verify(tokens[0], NOW)
        for token in tokens[1:]:
            checks.verify(token, NOW)
            assert checks.verify(tokens[0], NOW) is first
        assert checks.verified == 3 < VERIFIED_MAX


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lifetime_s": 0}, "at most 86400 s"),
        ({"lifetime_s": -1}, "at most 86400 s"),
        ({"lifetime_s": float("nan")}, "at most 86400 s"),
        ({"lifetime_s": LIFETIME_S_MAX + 1}, "at most 86400 s"),
        ({"subject": ""}, "a subject has 1 to 128"),
        ({"subject": "a\nb"}, "a subject has 1 to 128"),
        ({"role": ""}, "allows nothing"),
        ({"rights": Rights(request=("iris.doors",))}, "are never allowed"),
        ({"rights": Rights(publish=("a..b",))}, "publish: "),
        ({"subject": "ann.smith", "rights": Rights(publish=("notes.{sub}",))}, "'ann.smith' does not fit into rules"),
        ({"subject": Secret(b"s" * 32).text}, "in place of a name"),
        ({"role": Secret(b"s" * 32).text}, "in place of a name"),
        ({"token_id": "7"}, "32 hexadecimal digits"),
        ({"rights": Rights(request=tuple(f"{number:0200}" for number in range(60)))}, "Write the rules into a role"),
    ],
)
def test_mistakes_are_told_when_a_token_is_made(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        token_of(**arguments)
    assert words in str(caught.value)


def test_the_longest_token_is_valid() -> None:
    token = token_of(lifetime_s=LIFETIME_S_MAX, now=NOW + 0.5)
    assert verifier().verify(token, NOW + 0.5).until == NOW + LIFETIME_S_MAX + 1
    assert token_of(subject="ann.smith", rights=Rights(publish=("notes",)))


def test_a_token_is_read_without_keys() -> None:
    token = read_token(token_of(rights=Rights(observe=True)))
    assert (token.claims.sub, token.claims.role, token.claims.iris) == ("ann", "viewer", Rights(observe=True))
    assert token.key_id == KEYS.key_id.hex()
    assert token.is_signed_with(KEYS)
    assert not token.is_signed_with(Keyring(Secret(b"k" * 32), network="other").primary)
    assert not read_token(sign(HEADER, CLAIMS, b"x" * 32)).is_signed_with(KEYS)
    for wrong in ("", "a.b.c", sign(HEADER, json.dumps(CLAIMS) + " " * TOKEN_BYTES_MAX), with_header(alg="none")):
        with pytest.raises(DoorRefusal):
            read_token(wrong)


def test_the_key_is_that_of_the_design() -> None:
    """As somebody makes a token who has the secret and no Iris."""
    extracted = hmac.digest(b"lab", b"k" * 32, hashlib.sha256)
    key = hmac.digest(extracted, b"iris door token\x01", hashlib.sha256)
    assert verifier().verify(sign(HEADER, CLAIMS, key), NOW).subject == "ann"
