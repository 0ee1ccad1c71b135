"""Decoders of secrets, keys, signatures and of what is sealed: whatever comes, they refuse it with their own errors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import SECRET_FILE_BYTES_MAX, parse_content, parse_secrets
from iris_security import (
    AuthenticationError,
    CloudKey,
    DatagramOpener,
    DatagramSealer,
    GroupOpener,
    GroupSealer,
    Handshake,
    Identity,
    Keyring,
    LinkDatagrams,
    Purpose,
    RecordOpener,
    RecordSealer,
    ReplayError,
    Secret,
    SecretFormatError,
    is_permitted,
    multicast_associated,
    parse_cloud_public_key,
    unicast_associated,
    verify_signature,
)
from iris_security.administration import (
    RANK_BYTES,
    AdministrationKey,
    Rank,
    SignedGenerations,
    parse_administrator,
)
from iris_security.hkdf import hkdf
from iris_security.link_datagrams import sender_of
from iris_security.sealed_requests import SaltTable, SealedExchange, open_request, seal_request
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = Secret(bytes(range(32)))
KEYRING = Keyring(SECRET, network="test")
KEYS = KEYRING.cluster("cluster")
IDENTITY = Identity(b"i" * 32)
CLOUD = CloudKey(b"c" * 32)
ADMINISTRATION = AdministrationKey(b"a" * 32)
SIGNED = ADMINISTRATION.sign("test", 3, [SECRET, Secret(b"s" * 32)])
PERMIT = KEYS.permit(b"said")
SIGNATURE = IDENTITY.sign(Purpose.OVERLAY, b"said")
RECORD_KEY = b"r" * 32
UNICAST = unicast_associated(KEYS.group_id, IDENTITY.node_id, b"t" * 16)
MULTICAST = multicast_associated(KEYS.group_id, IDENTITY.node_id)


def run_text(data: bytes) -> None:
    """Read the text forms of secrets and keys: each stands for one value, which has this text."""
    text = data.decode("latin-1")
    for parse in (Secret.parse, AdministrationKey.parse, parse_administrator, CloudKey.parse, parse_cloud_public_key):
        try:
            value = parse(text)
        except SecretFormatError:
            continue
        assert isinstance(value, bytes) or value.text == text.strip()


def run_secret_file(data: bytes) -> None:
    """Read a file of secrets, and a setting; no error shows what was given."""
    try:
        secrets = parse_content(data, "the file", "Make one")
    except ConfigurationError as error:
        told = str(error)
        secrets = ()
    else:
        told = ""
    shown = data.decode("latin-1").strip()
    assert len(shown) < 8 or shown not in told
    for secret in secrets:
        assert Secret.parse(secret.text) == secret
    for value in (data, data.decode("latin-1"), [data, data.decode("latin-1")]):
        try:
            found = parse_secrets(value, "the setting")
        except ConfigurationError:
            continue
        assert found


def run_generations(data: bytes) -> None:
    """Read what an administrator has signed, and a rank."""
    try:
        opened = SignedGenerations.open(data, "test", ADMINISTRATION.administrator)
    except AuthenticationError:
        pass
    else:
        assert ADMINISTRATION.sign("test", opened.number, opened.secrets).encoded == data
    try:
        rank = Rank.decode(data)
    except ValueError:
        assert len(data) != RANK_BYTES
    else:
        assert rank.encode() == data


def run_signed_generations(data: bytes) -> None:
    """Read what an administrator has signed by mistake: anything."""
    signing = ADMINISTRATION._signing
    signature = signing.sign(b"generations", b"test\0" + data)
    try:
        opened = SignedGenerations.open(data + signature, "test", ADMINISTRATION.administrator)
    except AuthenticationError:
        return
    assert ADMINISTRATION.sign("test", opened.number, opened.secrets).encoded == data + signature


def run_signature(data: bytes) -> None:
    """Check signatures and permits: nobody without the key makes one for something else."""
    try:
        signer = verify_signature(Purpose.OVERLAY, b"said", data)
    except AuthenticationError:
        pass
    else:
        assert signer != IDENTITY.node_id or data == SIGNATURE
    assert not is_permitted(KEYS.group_id, b"said", data) or data == PERMIT


def opens(open_: Callable[[bytes], object], seeds: tuple[bytes, ...], skipped: int = 0) -> Callable[[bytes], None]:
    """Return a target: nothing opens but what was sealed; the first bytes of an input may belong to the target alone."""

    def run(data: bytes) -> None:
        try:
            open_(data)
        except AuthenticationError:
            return
        assert data[skipped:] in [seed[skipped:] for seed in seeds]

    return run


def open_datagram(data: bytes) -> object:
    """Open a datagram at a node that has heard nothing, and at once again."""
    opener = DatagramOpener(KEYRING)
    opener.is_foreign(data)
    return opener.open(data)


def open_link_datagram(data: bytes) -> object:
    """Open a datagram at the responder of a link that has heard nothing."""
    sender_of(data)
    return LinkDatagrams(RECORD_KEY, initiator=False).open(data)


def open_record(data: bytes) -> object:
    """Open the first record of a link."""
    return RecordOpener(RECORD_KEY).open(memoryview(data))


def open_body(data: bytes) -> object:
    """Open a body of a group, as the one for this node or as that for all."""
    opener = GroupOpener(KEYS)
    associated = UNICAST if data[:1] == b"u" else MULTICAST
    return opener.open(IDENTITY.node_id, data[1:13], data[13:], associated)


def open_sealed_request(data: bytes) -> object:
    """Open a request that is sealed end to end, at a member that has taken none."""
    opened = open_request((Secret(b"o" * 32), SECRET), "vault", data)
    SaltTable().take(opened, b"", opened.sealed_ms)
    return opened.payload


def run_sealed_by_mistake(data: bytes) -> None:
    """Open what somebody with the secret has sealed, whatever it is."""
    outer = b"\x01" + b"s" * 16
    key = hkdf(SECRET.value, salt=b"s" * 16, info=b"iris sealed requestvault")
    try:
        opened = open_request((SECRET,), "vault", outer + AESGCM(key).encrypt(bytes(12), data, outer))
    except AuthenticationError:
        return
    assert data.endswith(opened.payload)
    try:
        SaltTable().take(opened, b"", 1_700_000_000_000)
    except ReplayError:
        pass


def open_answer(data: bytes) -> object:
    """Open the reply to a sealed request, or its failure."""
    return (EXCHANGE.open_failure if data[:1] == b"f" else EXCHANGE.open_reply)(data[1:])


def run_noise(data: bytes) -> None:
    """Read both messages of a Noise handshake."""
    source = Source(data)
    initiator = Handshake(initiator=True, psk=b"p" * 32, prologue=b"", ephemeral_private=b"1" * 32)
    responder = Handshake(initiator=False, psk=b"p" * 32, prologue=b"", ephemeral_private=b"2" * 32)
    first, second = initiator.write_message(), b""
    if source.flag():
        first = source.raw(source.byte())
    try:
        responder.read_message(first)
        second = responder.write_message(source.raw(source.byte()))
        if source.flag():
            second = source.raw(source.byte())
        initiator.read_message(second)
    except AuthenticationError:
        return
    assert initiator.split().send == responder.split().receive


def _bodies() -> tuple[bytes, ...]:
    sealer = GroupSealer(KEYS, IDENTITY.node_id, epoch=1)
    for_one = itertools.chain(*sealer.seal(b"body", UNICAST))
    for_all = itertools.chain(*sealer.seal(b"body", MULTICAST))
    return b"u" + bytes(for_one), b"m" + bytes(for_all)


DATAGRAMS = (DatagramSealer(KEYRING.primary, IDENTITY).seal(b"payload"),)
LINK_DATAGRAMS = (LinkDatagrams(RECORD_KEY, initiator=True).seal(IDENTITY.node_id, b"payload"),)
RECORDS = (RecordSealer(RECORD_KEY).seal(b"record"),)
BODIES = _bodies()
SEALED = tuple(
    seal_request(SECRET, "vault", b"payload", salt=b"s" * 16, sealed_ms=1_700_000_000_000, key=key)[0] for key in (None, b"key")
)
EXCHANGE = SealedExchange(SECRET, b"vault", b"b" * 16)
ANSWERS = (b"r" + EXCHANGE.seal_reply(b"reply", b"s" * 16), b"f" + EXCHANGE.seal_failure(b"failure", b"s" * 16))
TEXTS = tuple(
    text.encode()
    for text in (SECRET.text, ADMINISTRATION.text, ADMINISTRATION.administrator_text, CLOUD.text, CLOUD.public_text)
)

TARGETS = (
    Target("secret-text", run_text, Kind.DECODER, TEXTS, 100),
    Target("secret-file", run_secret_file, Kind.DECODER, (TEXTS[0], b"# old\n" + TEXTS[0] + b"\n"), SECRET_FILE_BYTES_MAX),
    Target("signed-generations", run_generations, Kind.DECODER, (SIGNED.encoded, SIGNED.rank.encode()), 1024),
    Target("generations-of-administrator", run_signed_generations, Kind.SIGNATURE, (SIGNED.encoded[:-96],), 400),
    Target("signature", run_signature, Kind.SIGNATURE, (SIGNATURE, PERMIT), 200),
    Target("datagram", opens(open_datagram, DATAGRAMS), Kind.DECODER, DATAGRAMS, 1300),
    Target("link-datagram", opens(open_link_datagram, LINK_DATAGRAMS), Kind.DECODER, LINK_DATAGRAMS, 1300),
    Target("record", opens(open_record, RECORDS), Kind.DECODER, RECORDS, 300),
    Target("group-body", opens(open_body, BODIES, 1), Kind.DECODER, BODIES, 300),
    Target("sealed-request", opens(open_sealed_request, SEALED), Kind.DECODER, SEALED, 300),
    Target("sealed-by-mistake", run_sealed_by_mistake, Kind.SIGNATURE, (bytes(9), b"\x01" + bytes(24) + b"payload"), 100),
    Target("sealed-answer", opens(open_answer, ANSWERS, 1), Kind.DECODER, ANSWERS, 300),
    Target("noise", run_noise, Kind.SIGNATURE, (b"", bytes(200)), 300),
)
