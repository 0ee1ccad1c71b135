"""Tests of security/iris_security/keyring.py.

The hex strings are the wire format: a change that alters one of them cuts off every node that runs an older version.
"""

import base64
import copy
import dataclasses
import hashlib
import hmac
import pickle
import traceback
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from iris_security import (
    NAME_BYTES_MAX,
    GroupKeys,
    Identity,
    Keyring,
    NetworkKeys,
    Purpose,
    Secret,
    SecretFormatError,
    encode_name,
    is_permitted,
)
from iris_security.keyring import GENERATIONS_MAX

SECRET = Secret(bytes(range(32)))
OTHER = Secret(bytes(range(32, 64)))
THIRD, FOURTH = Secret(bytes(range(64, 96))), Secret(bytes(range(96, 128)))
NODE = bytes(range(16))
TEXT = "iris1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9eS3mD"
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def derive_by_hand(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 for one block of output."""
    extracted = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def keyring() -> Keyring:
    return Keyring(SECRET, network="lab", clusters={"vault": OTHER})


class TestSecretText:
    def test_the_text_is_pinned(self) -> None:
        assert SECRET.text == TEXT

    def test_the_checksum_is_the_one_of_the_design(self) -> None:
        decoded = base64.urlsafe_b64decode(TEXT.removeprefix("iris1."))
        assert decoded[:32] == SECRET.value
        assert decoded[32:] == hashlib.sha256(b"iris secret checksum" + SECRET.value).digest()[:4]

    @given(st.binary(min_size=32, max_size=32))
    def test_round_trip(self, value: bytes) -> None:
        text = Secret(value).text
        assert len(text) == len("iris1.") + 48
        assert Secret.parse(text).value == value

    @pytest.mark.parametrize("text", [f"  {TEXT}", f"{TEXT}\n", f"\t{TEXT}\r\n "])
    def test_white_space_around_it_does_not_matter(self, text: str) -> None:
        assert Secret.parse(text) == SECRET

    def test_each_changed_character_is_refused(self) -> None:
        for at in range(len(TEXT)):
            for character in ALPHABET + "+/=. é\0":
                if character == TEXT[at]:
                    continue
                with pytest.raises(SecretFormatError):
                    Secret.parse(TEXT[:at] + character + TEXT[at + 1 :])

    def test_each_lost_character_is_refused(self) -> None:
        for at in range(len(TEXT)):
            with pytest.raises(SecretFormatError):
                Secret.parse(TEXT[:at] + TEXT[at + 1 :])

    def test_each_doubled_or_swapped_character_is_refused(self) -> None:
        for at in range(len(TEXT) - 1):
            with pytest.raises(SecretFormatError):
                Secret.parse(TEXT[:at] + TEXT[at] + TEXT[at:])
            if TEXT[at] != TEXT[at + 1]:
                with pytest.raises(SecretFormatError):
                    Secret.parse(TEXT[:at] + TEXT[at + 1] + TEXT[at] + TEXT[at + 2 :])

    def test_the_standard_alphabet_of_base64_is_refused(self) -> None:
        text = Secret(b"\xfb\xef\xff" * 10 + b"\xfb\xef").text
        assert "-" in text
        assert "_" in text
        with pytest.raises(SecretFormatError, match="letters, digits"):
            Secret.parse(text.replace("-", "+").replace("_", "/"))

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("", 'starts with "iris1."'),
            ("iris2." + TEXT[6:], 'starts with "iris1."'),
            (TEXT.upper(), 'starts with "iris1."'),
            ("iris1.", "48 characters"),
            (TEXT + "A", "not 49"),
            (TEXT[:-1] + "=", "letters, digits"),
            (TEXT[:-1] + "E", "checksum"),
        ],
    )
    def test_the_error_says_what_is_wrong_and_what_to_do(self, text: str, hint: str) -> None:
        with pytest.raises(SecretFormatError, match=hint) as raised:
            Secret.parse(text)
        assert "copy the whole line" in str(raised.value)

    @given(st.text())
    def test_no_text_causes_another_error(self, text: str) -> None:
        with pytest.raises(SecretFormatError):
            Secret.parse("iris1." + text)

    def test_an_error_does_not_repeat_the_text(self) -> None:
        with pytest.raises(SecretFormatError) as raised:
            Secret.parse(TEXT[:-1] + "E")
        assert TEXT[6:20] not in "".join(traceback.format_exception_only(raised.value))


class TestSecret:
    def test_it_is_made_of_the_entropy_given(self) -> None:
        asked: list[int] = []

        def entropy(size: int) -> bytes:
            asked.append(size)
            return bytes(range(size))

        assert Secret.generate(entropy) == SECRET
        assert asked == [32]

    @pytest.mark.parametrize("size", [0, 16, 31, 33])
    def test_another_size_is_refused(self, size: int) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            Secret.from_bytes(bytes(size))
        with pytest.raises(ValueError, match="32 bytes"):
            Secret.generate(lambda _: bytes(size))

    def test_it_is_compared_by_value(self) -> None:
        assert Secret.from_bytes(bytes(SECRET.value)) == SECRET
        assert SECRET != OTHER
        assert SECRET.value != SECRET
        assert len({SECRET, Secret(SECRET.value), OTHER}) == 2

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            SECRET.value = OTHER.value

    def test_it_hides_in_every_text(self) -> None:
        assert repr(SECRET) == str(SECRET) == f"{SECRET}" == "Secret(<hidden>)"


class TestNames:
    @pytest.mark.parametrize("name", ["a", "render farm", "é" * 127, "x" * NAME_BYTES_MAX, "🙂"])
    def test_valid(self, name: str) -> None:
        assert encode_name(name) == name.encode("utf-8")

    @pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "a\0", "\ud800", b"bytes", None])
    def test_invalid_everywhere(self, name: str) -> None:
        ring = keyring()
        with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
            encode_name(name)
        with pytest.raises(ValueError):  # noqa: PT011
            ring.cluster(name)
        with pytest.raises(ValueError):  # noqa: PT011
            Keyring(SECRET, network=name)
        with pytest.raises(ValueError):  # noqa: PT011
            Keyring(SECRET, clusters={name: OTHER})

    def test_a_zero_would_make_two_names_one_network(self) -> None:
        """The reason of the rule: HMAC fills a short key, here the salt, up with zeros."""
        assert derive_by_hand(SECRET.value, b"lab", b"iris link") == derive_by_hand(SECRET.value, b"lab\0", b"iris link")


class TestNetworkKeys:
    def test_pinned(self) -> None:
        keys = keyring().primary
        assert keys.network == "lab"
        assert keys.key_id.hex() == "aa71c7d4690434b0"
        assert keys.link_psk.hex() == "4d8a592c67200379fe1c485458a5d36db560f38a16dec0276ca55cdbb8d846d8"
        assert keys.datagram_key.hex() == "5941cffd8e1dd20fc4ae1ed534b2296f47b2d24c00ceb2865d8c6ec3a8edf5b4"
        assert keys.door_key.hex() == "0ca2b286da561c6a03bb3529d10a40eb4203ba64bf6ad0309a631f7244b94cef"

    def test_derived_as_designed(self) -> None:
        keys = keyring().primary
        assert keys.key_id == derive_by_hand(SECRET.value, b"lab", b"iris key id")[:8]
        assert keys.link_psk == derive_by_hand(SECRET.value, b"lab", b"iris link")
        assert keys.datagram_key == derive_by_hand(SECRET.value, b"lab", b"iris datagram")
        assert keys.door_key == derive_by_hand(SECRET.value, b"lab", b"iris door token")

    def test_a_key_of_tokens_is_no_other_key(self) -> None:
        """A token shows what its key signs, so the key has no other use."""
        ring = Keyring(SECRET, network="lab", accepted=[OTHER, THIRD])
        others = {SECRET.value, OTHER.value, THIRD.value}
        for keys in ring.generations:
            others |= {keys.link_psk, keys.datagram_key}
        for group in (ring.realm(), *ring.accepted_realms(), ring.cluster("a"), *ring.accepted("a")):
            others |= {group.key, group.permit_seed, group.tunnel_psk(), group.interest_key()}
        own = [keys.door_key for keys in ring.generations]
        assert len(set(own)) == 3
        assert [len(key) for key in own] == [32, 32, 32]
        assert not others & set(own)
        assert own == [Keyring(secret, network="lab").primary.door_key for secret in (SECRET, OTHER, THIRD)]

    def test_two_names_are_two_networks(self) -> None:
        one, two = Keyring(SECRET, network="one"), Keyring(SECRET, network="two")
        assert one.primary.key_id != two.primary.key_id
        assert one.primary.link_psk != two.primary.link_psk
        assert one.primary.datagram_key != two.primary.datagram_key
        assert one.primary.door_key != two.primary.door_key
        assert one.cluster("a").group_id != two.cluster("a").group_id
        assert one.cluster("a").key != two.cluster("a").key

    def test_the_usual_network_has_a_name(self) -> None:
        assert Keyring(SECRET).network == "default"
        assert Keyring(SECRET).primary == NetworkKeys.derive(SECRET, "default")

    def test_secrets_stay_out_of_the_text(self) -> None:
        ring = keyring()
        assert repr(ring) == "Keyring(network='lab', key_id=aa71c7d4690434b0, generations=1)"
        assert repr(ring.primary) == "NetworkKeys(network='lab', key_id=aa71c7d4690434b0, <hidden>)"


class TestGenerations:
    def test_primary_and_accepted_are_found(self) -> None:
        old = Keyring(OTHER).primary
        ring = Keyring(SECRET, accepted=[OTHER])
        assert ring.find(ring.primary.key_id) is ring.primary
        assert ring.find(old.key_id) == old

    def test_unknown_is_not_found(self) -> None:
        ring = Keyring(SECRET)
        assert ring.find(Keyring(OTHER).primary.key_id) is None
        assert ring.find(Keyring(SECRET, network="elsewhere").primary.key_id) is None
        assert ring.find(b"") is None

    def test_groups_come_from_the_primary(self) -> None:
        assert Keyring(SECRET, accepted=[OTHER]).realm() == Keyring(SECRET).realm()

    def test_each_generation_has_groups_of_its_own(self) -> None:
        ring = Keyring(SECRET, accepted=[OTHER], clusters={"own": [OTHER, SECRET]})
        assert ring.accepted("a") == [Keyring(OTHER).cluster("a")]
        assert ring.accepted_realms() == [Keyring(OTHER).realm()]
        assert (ring.cluster("own"), ring.accepted("own")) == (Keyring(OTHER).cluster("own"), [Keyring(SECRET).cluster("own")])
        assert Keyring(SECRET).accepted("a") == []

    def test_generations_are_named_by_ids_alone(self) -> None:
        ring = Keyring(SECRET, accepted=[OTHER], clusters={"own": [OTHER, SECRET]})
        one, other = Keyring(SECRET).primary.key_id, Keyring(OTHER).primary.key_id
        assert [keys.key_id for keys in ring.generations] == [one, other]
        assert ring.own_secrets == {"own": (other, one)}

    def test_whether_a_cluster_has_a_secret_of_its_own_is_not_asked_of_a_function(self) -> None:
        ring = Keyring(SECRET, clusters={"own": OTHER})
        assert (ring.has_own_secret("own"), ring.has_own_secret("other")) == (True, False)

        def refuse(_name: str) -> None:
            raise AssertionError

        assert Keyring(SECRET, clusters=refuse).has_own_secret("own") is None

    def test_keys_tell_whether_they_come_from_a_secret_of_the_cluster(self) -> None:
        for clusters in ({"own": [THIRD, FOURTH]}, lambda name: THIRD if name == "own" else None):
            ring = Keyring(SECRET, accepted=[OTHER], clusters=clusters)
            assert all(ring.is_own("own", keys) for keys in (ring.cluster("own"), *ring.accepted("own")))
            assert not any(ring.is_own("other", keys) for keys in (ring.cluster("other"), *ring.accepted("other")))

    def test_there_is_at_least_one_and_not_too_many(self) -> None:
        many = [Secret(bytes([number]) * 32) for number in range(GENERATIONS_MAX)]
        Keyring(many[0], accepted=many)
        with pytest.raises(ValueError, match="retire the oldest"):
            Keyring(SECRET, accepted=many)
        with pytest.raises(ValueError, match="the cluster 'a' has no secret"):
            Keyring(SECRET, clusters={"a": []})

    def test_a_link_shows_that_both_sides_hold_a_generation(self) -> None:
        keys, transcript = Keyring(SECRET).primary, bytes(32)
        proof = keys.prove(transcript, initiator=True)
        assert keys.verify(transcript, proof, initiator=True)
        assert not keys.verify(transcript, proof, initiator=False)  # or one side could send back what the other one said
        assert not keys.verify(b"x" * 32, proof, initiator=True)
        assert not Keyring(OTHER).primary.verify(transcript, proof, initiator=True)

    def test_a_secret_given_twice_stays_primary(self) -> None:
        ring = Keyring(SECRET, accepted=[SECRET])
        assert ring.find(ring.primary.key_id) is ring.primary


class TestGroups:
    @pytest.mark.parametrize(
        ("kind", "name", "group_id", "key", "proof"),
        [
            (
                "cluster",
                "render",
                "791446735e99fabe8f89517dd2b5b081",
                "d555f178e87263a49fcf33360a9e42e69c7af243e1aabd6201fd95a464a03c04",
                "83d27a69f51bca7c7c37c75799da5445",
            ),
            (
                "realm",
                "topics",
                "c480ead20108a76d949bd3e57817617b",
                "5efbedc6822ec1671e4cd1a41f28901e0861dd4b352e537b579e278b721ab1a8",
                "d6936845966fc9d11e43107ab0bd0a6a",
            ),
            (
                "cluster",
                "vault",
                "bbe588f9d2ad2fd197237c9bf9ddc754",
                "07bb517e0a05569c8d2139aabe27cba81b93b7da2741534067ff1983154452b5",
                "baf39990095d9c227f2015d473ab40cf",
            ),
        ],
    )
    def test_pinned_and_derived_as_designed(self, kind: str, name: str, group_id: str, key: str, proof: str) -> None:
        keys = keyring().cluster(name) if kind == "cluster" else keyring().realm()
        assert (keys.group_id.hex(), keys.key.hex(), keys.proof(NODE).hex()) == (group_id, key, proof)

        secret = OTHER.value if name == "vault" else SECRET.value
        seed = derive_by_hand(secret, b"lab", f"iris permit {kind} {name}".encode())
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        assert keys.group_id == hashlib.sha256(b"iris group id" + public).digest()[:16]
        assert keys.key == derive_by_hand(secret, b"lab", f"iris {kind} {name}".encode())
        assert keys.proof(NODE) == hmac.new(derive_by_hand(keys.key, b"", b"iris member"), NODE, hashlib.sha256).digest()[:16]

    def test_names_and_kinds_are_groups_of_their_own(self) -> None:
        ring = keyring()
        groups = [ring.cluster("a"), ring.cluster("b"), ring.realm(), ring.cluster("topics"), ring.cluster("A")]
        assert len({keys.group_id for keys in groups}) == len({keys.key for keys in groups}) == len(groups)

    def test_the_key_of_the_interest_is_its_own(self) -> None:
        keys = keyring().realm()
        assert keys.interest_key() == derive_by_hand(keys.key, b"", b"iris interest")
        assert keys.interest_key() != Keyring(OTHER, network="lab").realm().interest_key()

    def test_the_group_of_an_entry_is_of_its_realm_and_entry(self) -> None:
        keys = keyring().realm()
        group = keys.entry_group(b"entry")
        assert group.key == derive_by_hand(keys.key, b"", b"iris entry entry")
        assert group.permit_seed == derive_by_hand(keys.key, b"", b"iris entry permit entry")
        assert group == keyring().realm().entry_group(b"entry")
        others = [keys.entry_group(b"other"), Keyring(OTHER, network="lab").realm().entry_group(b"entry"), keys]
        assert group.group_id not in {other.group_id for other in others}

    def test_a_secret_of_its_own_separates_a_cluster(self) -> None:
        with_secret, without = Keyring(SECRET, clusters={"a": OTHER}), Keyring(SECRET)
        assert with_secret.cluster("a").group_id != without.cluster("a").group_id
        assert with_secret.cluster("a").key != without.cluster("a").key
        # It is the cluster's alone.
        assert with_secret.cluster("b") == without.cluster("b")
        assert with_secret.realm() == without.realm()

    def test_a_secret_of_its_own_outlives_the_rotation_of_the_network(self) -> None:
        clusters = {"a": OTHER}
        later = Secret(bytes(32))
        assert Keyring(SECRET, clusters=clusters).cluster("a") == Keyring(later, clusters=clusters).cluster("a")

    def test_the_key_stays_out_of_the_text(self) -> None:
        keys = keyring().cluster("render")
        assert repr(keys) == "GroupKeys(group_id=791446735e99fabe8f89517dd2b5b081, <hidden>)"


class TestProof:
    KEYS = GroupKeys(key=bytes(range(32)), permit_seed=bytes(32))

    def test_valid(self) -> None:
        assert self.KEYS.verify_proof(NODE, self.KEYS.proof(NODE))

    def test_each_changed_bit_is_refused(self) -> None:
        proof = self.KEYS.proof(NODE)
        for bit in range(128):
            changed = (int.from_bytes(proof, "big") ^ 1 << bit).to_bytes(16, "big")
            assert not self.KEYS.verify_proof(NODE, changed)

    def test_another_node_or_group_is_refused(self) -> None:
        proof = self.KEYS.proof(NODE)
        assert not self.KEYS.verify_proof(bytes(16), proof)
        assert not GroupKeys(key=bytes(32), permit_seed=bytes(32)).verify_proof(NODE, proof)

    def test_a_statement_belongs_to_its_proof(self) -> None:
        proof = self.KEYS.proof(NODE, b"two")
        assert self.KEYS.verify_proof(NODE, proof, b"two")
        for statement in (b"", b"tw", b"twoo"):
            assert not self.KEYS.verify_proof(NODE, proof, statement)
        assert not self.KEYS.verify_proof(NODE, self.KEYS.proof(NODE), b"two")

    @pytest.mark.parametrize("proof", [b"", bytes(15), bytes(17), bytes(32)])
    def test_another_size_is_refused(self, proof: bytes) -> None:
        assert not self.KEYS.verify_proof(NODE, proof)
        assert not self.KEYS.verify_proof(NODE, self.KEYS.proof(NODE)[:15])

    def test_an_id_of_another_size_is_the_callers_error_or_the_peers_lie(self) -> None:
        with pytest.raises(ValueError, match="16 bytes"):
            self.KEYS.proof(b"short")
        assert not self.KEYS.verify_proof(b"short", bytes(16))


RING = Keyring(SECRET, network="lab", accepted=(Secret(bytes(32)),))


@pytest.mark.parametrize("held", [SECRET, RING, RING.primary, RING.cluster("a")], ids=lambda held: type(held).__name__)
class TestKeysStayInTheProcess:
    def test_they_are_not_pickled(self, held: object) -> None:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="is not pickled"):
                pickle.dumps(held, protocol)
            with pytest.raises(TypeError, match="is not pickled"):
                pickle.dumps({"settings": [held]}, protocol)

    def test_they_are_not_listed_field_by_field(self, held: object) -> None:
        with pytest.raises(TypeError):
            dataclasses.asdict(held)  # type: ignore[call-overload]

    def test_settings_that_hold_them_are_shown_without_them(self, held: object) -> None:
        @dataclasses.dataclass
        class Settings:
            held: object

        shown = dataclasses.asdict(Settings(held))
        assert type(shown["held"]) is type(held)
        assert SECRET.value.hex() not in str(shown)
        assert repr(SECRET.value) not in str(shown)


@pytest.mark.parametrize("held", [SECRET, RING.primary, RING.cluster("a")], ids=lambda held: type(held).__name__)
def test_keys_do_not_change_and_a_copy_is_the_same(held: Any) -> None:
    assert copy.copy(held) is held
    assert copy.deepcopy([held])[0] is held
    for name in type(held).__slots__:
        with pytest.raises(AttributeError):
            setattr(held, name, b"")
        with pytest.raises(AttributeError):
            delattr(held, name)


class TestPermit:
    KEYS = keyring().cluster("render")

    def test_whoever_knows_the_group_id_can_check_it(self) -> None:
        assert is_permitted(self.KEYS.group_id, b"data", self.KEYS.permit(b"data"))

    def test_it_is_for_one_group_and_one_thing(self) -> None:
        permit = self.KEYS.permit(b"data")
        assert not is_permitted(self.KEYS.group_id, b"other", permit)
        others = [keyring().realm(), keyring().cluster("b"), Keyring(OTHER, network="lab").cluster("render")]
        for other in others:
            assert not is_permitted(other.group_id, b"data", permit)
            assert not is_permitted(self.KEYS.group_id, b"data", other.permit(b"data"))

    def test_a_signature_of_a_node_is_no_permit(self) -> None:
        node = Identity(self.KEYS.permit_seed)
        for purpose in Purpose:
            assert not is_permitted(self.KEYS.group_id, b"data", node.sign(purpose, b"data"))

    def test_each_changed_bit_is_refused(self) -> None:
        permit = self.KEYS.permit(b"data")
        for bit in range(8 * len(permit)):
            changed = (int.from_bytes(permit, "big") ^ 1 << bit).to_bytes(len(permit), "big")
            assert not is_permitted(self.KEYS.group_id, b"data", changed)
        assert not is_permitted(self.KEYS.group_id, b"data", b"")
