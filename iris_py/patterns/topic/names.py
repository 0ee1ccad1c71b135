"""Topic names, patterns, and the index that finds the patterns a topic matches.

A topic is a sequence of *tokens* separated by dots: ``sensors.berlin.roof``. In a pattern, ``*`` matches a single token, and
``>`` as the last token matches at least one token. The tokens before the first wildcard are the *literal prefix*.
"""

from __future__ import annotations

from typing import Final, Generic, TypeAlias, TypeVar

from iris_py.wire.names import CLOUD_MARK, check_own_name
from iris_security.text_form import refuse_secret

Value = TypeVar("Value")
#: The tokens of a name or of a prefix.
Tokens: TypeAlias = tuple[str, ...]

#: The longest topic: it travels with each message.
TOPIC_BYTES_MAX = 255
#: As deep as file systems are; the shape of a pattern has a bit for each token.
TOKENS_MAX = 16

ANY_TOKEN, ANY_REST = "*", ">"
#: The start of ``RESERVED_NAMES`` and of every secret. A name that contains it is checked in steps.
_IRIS: Final = "iris"


def parse_topic(topic: str) -> Tokens:
    """Split the name of a topic.

    Raises:
        ValueError: The name is invalid; the text suggests a correction.
    """
    if (  # the names without anything to look at more closely: nearly all; the other ones take ten times as long
        type(topic) is str
        and topic.isascii()
        and len(topic) <= TOPIC_BYTES_MAX
        and ANY_TOKEN not in topic
        and ANY_REST not in topic
        and CLOUD_MARK not in topic
        and "\0" not in topic
        and _IRIS not in topic
    ):
        plain = topic.split(".")
        if "" not in plain and len(plain) <= TOKENS_MAX:
            return tuple(plain)
    tokens = _split(topic, "topic")  # which says what is wrong
    for token in tokens:
        if ANY_TOKEN in token or ANY_REST in token:
            raise ValueError(f"the topic {topic!r} has a wildcard. Publish to one topic; patterns are for subscriptions.")
    return tokens


def parse_pattern(pattern: str) -> Tokens:
    """Split a pattern.

    Raises:
        ValueError: The pattern is invalid; the text suggests a correction.
    """
    tokens = _split(pattern, "pattern")
    for number, token in enumerate(tokens, 1):
        if token == ANY_REST and number < len(tokens):
            raise ValueError(f"the pattern {pattern!r} continues after '>'. Write '>' as the last token, or '*' for one.")
        if len(token) > 1 and (ANY_TOKEN in token or ANY_REST in token):
            raise ValueError(
                f"in the pattern {pattern!r}, {token!r} mixes a wildcard with text. A wildcard must be a whole token."
            )
    return tokens


def literal_prefix(pattern: Tokens) -> Tokens:
    """Return the tokens of a pattern before its first wildcard."""
    for index, token in enumerate(pattern):
        if token in (ANY_TOKEN, ANY_REST):
            return pattern[:index]
    return pattern


def _split(name: str, what: str) -> Tokens:
    if not isinstance(name, str) or not name:
        raise ValueError(f"a {what} is a non-empty string, not {name!r}. Give it tokens with dots between them, as 'a.b'.")
    refuse_secret(name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the {what} {name!r} is not valid Unicode. Leave the surrogates out.") from None
    if size > TOPIC_BYTES_MAX:
        raise ValueError(
            f"a {what} has at most {TOPIC_BYTES_MAX} bytes in UTF-8, but this one has {size}. Choose a shorter one."
        )
    if "\0" in name:
        raise ValueError(f"the {what} {name!r} has the character U+0000. Leave it out.")
    check_own_name(name)
    tokens = tuple(name.split("."))
    if not all(tokens):
        raise ValueError(f"the {what} {name!r} has an empty token. Write text between the dots, and no dot at the ends.")
    if len(tokens) > TOKENS_MAX:
        raise ValueError(f"a {what} has at most {TOKENS_MAX} tokens, but this one has {len(tokens)}. Join some tokens.")
    return tokens


class _TrieNode(Generic[Value]):
    """The patterns that begin with the same tokens.

    Attributes:
        any_rest: The node of the patterns with ``>`` as the next token; None without such a pattern.
        any_token: The same for ``*``.
        children: The nodes of the patterns with another next token, by this token.
        values: The values of the pattern that ends here.
    """

    __slots__ = ("any_rest", "any_token", "children", "values")

    def __init__(self) -> None:
        self.any_rest: _TrieNode[Value] | None = None
        self.any_token: _TrieNode[Value] | None = None
        self.children: dict[str, _TrieNode[Value]] = {}
        self.values: dict[Value, None] = {}

    def child(self, token: str) -> _TrieNode[Value] | None:
        """Return the node for the next token of a pattern; None if no pattern has it."""
        if token == ANY_TOKEN:
            return self.any_token
        return self.any_rest if token == ANY_REST else self.children.get(token)

    def add_child(self, token: str) -> _TrieNode[Value]:
        """Add a node for the next token of a pattern; return the node."""
        child: _TrieNode[Value] = _TrieNode()
        if token == ANY_TOKEN:
            self.any_token = child
        elif token == ANY_REST:
            self.any_rest = child
        else:
            self.children[token] = child
        return child

    def remove_child(self, token: str) -> None:
        """Remove the node for the next token of a pattern."""
        if token == ANY_TOKEN:
            self.any_token = None
        elif token == ANY_REST:
            self.any_rest = None
        else:
            del self.children[token]

    @property
    def is_empty(self) -> bool:
        """Whether no pattern begins with these tokens."""
        return not (self.values or self.children or self.any_token or self.any_rest)


class TopicTrie(Generic[Value]):
    """An index of patterns; finding the matches of a topic takes a time independent of the number of other patterns."""

    def __init__(self) -> None:
        self._root: _TrieNode[Value] = _TrieNode()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Tokens, value: Value) -> None:
        """Add a value; a repetition under the same pattern has no effect."""
        node = self._root
        for token in pattern:
            node = node.child(token) or node.add_child(token)
        self._size += value not in node.values
        node.values[value] = None

    def remove(self, pattern: Tokens, value: Value) -> bool:
        """Remove a value and its unused nodes; return whether it was present."""
        path = [self._root]
        for token in pattern:
            child = path[-1].child(token)
            if child is None:
                return False
            path.append(child)
        if value not in path[-1].values:
            return False
        del path[-1].values[value]
        self._size -= 1
        for depth in range(len(pattern), 0, -1):
            if not path[depth].is_empty:
                break
            path[depth - 1].remove_child(pattern[depth - 1])
        return True

    def match(self, topic: Tokens) -> list[Value]:
        """Return the values whose patterns match a topic, without duplicates."""
        if not self._size:
            return []
        found: dict[Value, None] = {}
        nodes = [self._root]
        for token in topic:
            following: list[_TrieNode[Value]] = []
            for node in nodes:
                if node.any_rest is not None:
                    found.update(node.any_rest.values)
                if node.children and (child := node.children.get(token)) is not None:
                    following.append(child)
                if node.any_token is not None:
                    following.append(node.any_token)
            nodes = following
        for node in nodes:
            found.update(node.values)
        return list(found)

    def literal_bits(self, topic: Tokens) -> int:
        """Return the positions of the tokens read by :meth:`match`, as bits.

        A topic with as many tokens, and the same tokens at the positions, has the same matches.
        """
        bits = 0
        nodes = [self._root]
        for position, token in enumerate(topic):
            following: list[_TrieNode[Value]] = []
            for node in nodes:
                if node.children:
                    bits |= 1 << position
                    if (child := node.children.get(token)) is not None:
                        following.append(child)
                if node.any_token is not None:
                    following.append(node.any_token)
            nodes = following
        return bits
