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
1 - 9, 0, Tab    another table: clusters, nodes, topics, groups, links,
                 events, publishers (the nodes that publish each topic),
                 tunnels (the nodes that hold them, by member), clouds
                 (whether each gateway reaches them, and failures),
                 doors (their clients, and the messages of these)
arrows           move; Page Up, Page Down, Home and End as usual
Enter            open the row: a cluster shows its members, a member
                 or node its statistics, other rows their node
Esc              back; closes the filter
/                show only rows with a text, while you type; Enter
                 keeps the filter
s, S             sort by the next or the previous column;
                 or click on a column heading
r                reverse the sort order
p                pause: no node is queried
+, -             query less often, more often
?                this help
q, Ctrl-C        quit

In red: failures of callers, as reported by their nodes: no members,
unavailable (no gateway reaches the cloud), timed out, member lost,
overloaded, handler raised. Each is shown for a minute.
Rates cover the time between the last two answers of each node. Sums
are exact if all nodes answered. In a network of more than 256 nodes
a sample is queried: +- is the margin of error of a sum in 19 of 20
cases.
SILENT: the node does not answer. GONE: the node has left the ring;
it is shown for a minute. REFUSES: the node refuses queries, or gets
too many."""


class HelpScreen(ModalScreen[None]):
    """Shows the keys of `iris top` until a key is pressed."""

    CSS = """
    HelpScreen { align: center middle; background: ansi_default; }
    HelpScreen VerticalScroll { width: 74; height: auto; max-height: 100%; border: solid ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,f1,q,enter,space", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        """Make the widget with the text."""
        yield VerticalScroll(Static(HELP, markup=False))
