"""The help of the full screen of `iris top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

__all__ = ["HelpScreen"]

HELP: Final = """\
1 - 8, Tab       another table: clusters, nodes, topics, links, events,
                 publishers (which node publishes what), tunnels
                 (which node holds how many at which member), clouds
                 (how each gateway reaches them, and what fails there)
arrows           move; Page Up, Page Down, Home and End as usual
Enter            into the row: members of a cluster, then the
                 numbers of a node; of others the node they are of
Esc              back; closes the filter
/                only rows with a text, while you type; Enter keeps it
s, S             sort by the next column, or the one before;
                 or click on its head
r                sort the other way round
p                pause: nobody is asked
+, -             read less often, more often
?                this help
q, Ctrl-C        quit

In red: what callers meet, from the nodes that ask: no members,
unavailable (no gateway reaches the cloud), timed out, member lost,
overloaded, handler raised. It stays for a minute.
Rates are of the time between the last two answers of each node. Sums
are exact if all nodes answered. Of more than 256 nodes a sample is
asked: +- says how far off a sum may be in 19 of 20 cases.
SILENT: the node does not answer. GONE: it is not in the ring any
more; it is shown for a minute. REFUSES: it tells nothing of itself,
or too many ask it."""


class HelpScreen(ModalScreen[None]):
    """Shows the keys until one is pressed."""

    CSS = """
    HelpScreen { align: center middle; background: ansi_default; }
    HelpScreen VerticalScroll { width: 74; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,f1,q,enter,space", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """Make the text."""
        yield VerticalScroll(Static(HELP, markup=False))
