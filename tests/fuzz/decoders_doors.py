"""Decoders of doors: whatever clients show, doors refuse it by a name of their table."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode

from iris_py.doors.door_messages import (
    ClientPage,
    ClientPageQuestion,
    DoorAnnouncement,
    DoorGreeting,
    DoorStatus,
    RevocationOrder,
    RevocationPage,
    RevocationPageQuestion,
    RevocationReceipt,
    UserPage,
    decode_message,
    encode_message,
)
from iris_py.doors.door_reports import ClientReport, DoorFigures, UserDigest
from iris_py.doors.door_table import DoorTable
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.revocations import RevocationTable, SubjectRevocation, TokenRevocation, TotalRevocation
from iris_py.doors.rights import CLOCK_SKEW_S_MAX, LIFETIME_S_MAX, Rights
from iris_py.servers.tokens import TOKEN_BYTES_MAX, TokenVerifier, make_token
from iris_security import Keyring, Secret
from tests.fuzz.target import Kind, Target

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
NOW = 1_700_000_000.0
RIGHTS = Rights(request=("quotes",), publish=("notes.{sub}",), observe=True)
ROLES = {"viewer": RIGHTS}
TOKEN = make_token(
    KEYRING.primary, subject="ann", role="viewer", rights=RIGHTS, lifetime_s=60, now=NOW, token_id="0123456789abcdef" * 2
)
CLAIMS = b'{"sub":"ann","exp":1700000060,"aud":"test","jti":"%s","role":"viewer","iris":{"request":["quotes"]}}' % (b"0f" * 16)


def run_token(data: bytes) -> None:
    """Verify a token: nobody without the key makes one."""
    text = data.decode("latin-1")
    try:
        grant = TokenVerifier(lambda: KEYRING, ROLES).verify(text, NOW)
    except DoorRefusal:
        return
    assert text == TOKEN
    assert grant.rights == (RIGHTS, RIGHTS)


def run_signed_claims(data: bytes) -> None:
    """Verify a token that somebody with the key has made of anything: no grant has less than its claims say."""
    header = json.dumps({"alg": "HS256", "kid": KEYRING.primary.key_id.hex()}).encode()
    said = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in (header, data))
    signature = urlsafe_b64encode(hmac.digest(KEYRING.primary.door_key, said, "sha256")).rstrip(b"=")
    try:
        grant = TokenVerifier(lambda: KEYRING, ROLES).verify(f"{said.decode()}.{signature.decode()}", NOW)
    except DoorRefusal:
        return
    claims = json.loads(data)
    assert (grant.subject, grant.until, grant.token_id) == (claims["sub"], claims["exp"], claims["jti"])
    assert len(grant.rights) == len(claims.keys() & {"role", "iris"}) > 0


def run_door_message(data: bytes) -> None:
    """Read a message of an insider to the cluster of all doors, and take over what it says: tables keep their bounds."""
    message = decode_message(data)
    if message is None:
        return
    assert decode_message(encode_message(message)) == message
    revocations, doors = RevocationTable(2), DoorTable("f" * 16)
    if isinstance(message, RevocationOrder | RevocationPage):
        outcomes = [revocations.add(each, NOW) for each in message.revocations]
        assert outcomes.count("added") >= len(revocations)
        assert len(revocations) <= 3
        revocations.expire(NOW + LIFETIME_S_MAX + 10 * CLOCK_SKEW_S_MAX)
        assert revocations.digest == RevocationTable().digest
    elif isinstance(message, DoorGreeting):
        doors.hear("node", message, revocations.digest)
        doors.keep(())
        assert doors.all == ()


DOOR = DoorAnnouncement(id="0123456789abcdef", kind="web", address="https://iris.example", version="0.1.0")
REVOCATIONS = (TokenRevocation("0" * 32, NOW + 5), SubjectRevocation("ann", NOW), TotalRevocation(NOW))
DOOR_MESSAGES = (
    DoorGreeting(DOOR, bytes(8)),
    RevocationOrder(REVOCATIONS),
    RevocationReceipt(DOOR, ("added", "full", "ended")),
    RevocationPageQuestion(DOOR.id, 4000),
    RevocationPage(REVOCATIONS),
    ClientPageQuestion(DOOR.id, 500, 7),
    ClientPage(DOOR, 1, (ClientReport(number=2, name="shop", age_s=5.5),)),
    DoorStatus(DOOR, DoorFigures(clients=3)),
    UserPage(DOOR, 1, b"d" * 32, (UserDigest("ann", b"12345678"),)),
)

TARGETS = (
    Target("door-token", run_token, Kind.DECODER, (TOKEN.encode(),), TOKEN_BYTES_MAX + 1),
    Target("door-token-claims", run_signed_claims, Kind.DECODER, (CLAIMS,), TOKEN_BYTES_MAX),
    Target("door-message", run_door_message, Kind.DECODER, tuple(encode_message(each) for each in DOOR_MESSAGES), 64 * 1024),
)
