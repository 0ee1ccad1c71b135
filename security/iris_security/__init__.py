"""Secrets, derived keys, and the encryption of links, messages to groups and datagrams (docs/design.md 2-4).

This package is pure: no input or output, no clock, no randomness. Callers pass entropy as an argument.
"""

from iris_security.administration import AdministrationKey, SignedGenerations, parse_administrator
from iris_security.aead import Suite
from iris_security.cloud_key import CloudKey, cloud_id_of, cloud_public_key_text, pair_id, parse_cloud_public_key
from iris_security.datagram import DatagramOpener, DatagramSealer
from iris_security.envelope import GroupOpener, GroupSealer, multicast_associated, unicast_associated
from iris_security.errors import AuthenticationError, KeyExhaustedError, ReplayError, SecretFormatError, SecurityError
from iris_security.identity import IDENTITY_SEED_BYTES, Identity, Purpose, verify_signature
from iris_security.keyring import (
    NAME_BYTES_MAX,
    GroupKeys,
    Keyring,
    NetworkKeys,
    encode_name,
    is_permitted,
)
from iris_security.link_datagrams import LinkDatagrams
from iris_security.noise import Handshake
from iris_security.noise_kk import KnownKeysHandshake
from iris_security.record import RecordOpener, RecordSealer
from iris_security.secret import SECRET_BYTES, Entropy, Secret
from iris_security.signature import SIGNATURE_BYTES
from iris_security.symmetric import TransportKeys

__all__ = [
    "IDENTITY_SEED_BYTES",
    "NAME_BYTES_MAX",
    "SECRET_BYTES",
    "SIGNATURE_BYTES",
    "AdministrationKey",
    "AuthenticationError",
    "CloudKey",
    "DatagramOpener",
    "DatagramSealer",
    "Entropy",
    "GroupKeys",
    "GroupOpener",
    "GroupSealer",
    "Handshake",
    "Identity",
    "KeyExhaustedError",
    "Keyring",
    "KnownKeysHandshake",
    "LinkDatagrams",
    "NetworkKeys",
    "Purpose",
    "RecordOpener",
    "RecordSealer",
    "ReplayError",
    "Secret",
    "SecretFormatError",
    "SecurityError",
    "SignedGenerations",
    "Suite",
    "TransportKeys",
    "cloud_id_of",
    "cloud_public_key_text",
    "encode_name",
    "is_permitted",
    "multicast_associated",
    "pair_id",
    "parse_administrator",
    "parse_cloud_public_key",
    "unicast_associated",
    "verify_signature",
]
