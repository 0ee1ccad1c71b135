"""An extension of Sphinx for this site: references that lead somewhere, and an interface of which no name is left out.

* A reference to a name that exists, but has no entry of its own (a type of the standard library, a private base class), is
  shown as code; Sphinx alone would warn of each. One to a name that does not exist stays a warning, and so an error.
* Every public name of the packages must have an entry in the reference.
* Links of Markdown that lead out of this folder, to files that have a page here, lead to that page.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from sphinx.addnodes import pending_xref
from sphinx.util.logging import getLogger
from sphinx.util.nodes import make_refnode

import iris_py
import iris_py.sync

if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature

    from docutils.nodes import Element, document, reference
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = getLogger(__name__)

#: The functions that show every setting in their signature, and these signatures.
WITH_SETTINGS: Final[dict[Callable[..., object], Signature]] = {}

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
#: Where the names of annotations are looked up.
SOURCES: Final = ("iris_py", "overlay/iris_overlay", "security/iris_security", "spark_connector")
#: What is public: every name in the `__all__` of each.
PUBLIC: Final = ("iris_py", "iris_py.sync", "iris_py.testing", "iris_py.gateway", "spark_connector")
#: Files above this folder that a page here includes, and what their links lead to on the site.
INCLUDED: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what is below with Sphinx."""
    hide_settings()
    app.connect("autodoc-before-process-signature", show_settings)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # before napoleon, which has 500
    app.connect("autodoc-process-bases", leave_out_private_bases)
    app.connect("source-read", read_page)
    app.connect("doctree-read", name_in_full)
    app.connect("missing-reference", resolve)
    app.connect("env-check-consistency", check_interface)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def hide_settings() -> None:
    """Remove the signatures that show every setting.

    Autodoc compares the signature of a function with the source of the function, to show defaults as written. The source has
    ``**settings`` in place of the settings.
    """
    for function in (iris_py.connect, iris_py.sync.connect):
        WITH_SETTINGS[function] = vars(function).pop("__signature__")


def show_settings(_app: Sphinx, thing: object, _is_bound_method: bool) -> None:
    """Give a function its signature with every setting back, after autodoc has read the source."""
    if inspect.isfunction(thing) and thing in WITH_SETTINGS:
        thing.__signature__ = WITH_SETTINGS[thing]  # type: ignore[attr-defined]


def prepare_docstring(_app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Link pages that a docstring names, and keep the sentence before a colon from being taken for the type of an attribute."""
    lines[:] = [re.sub(r"\bdocs/([\w/-]+)\.md\b", link_page, line) for line in lines]
    if what in {"attribute", "property"} and lines and lines[0]:
        lines[0] = f": {lines[0]}"


def read_page(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put in a file from above this folder, with links that lead from here where they led from there.

    A link to what has no page here, as a folder of examples, becomes its words: the site has no copy of the repository.
    """
    source = Path(app.srcdir) / f"{docname}.md"
    content[0] = re.sub(
        r"\[([^\]\n]+)\]\(((?:\.\./)+[^)\s#]+)\)",
        lambda link: link[1] if is_outside(source, link[2]) else link[0],
        content[0],
    )
    found = re.fullmatch(r"```\{include\} \.\./(\w+\.md)\n```\n", content[0])
    if found is None:
        return
    text = (ROOT / found[1]).read_text()
    content[0] = re.sub(r"\[([^\]\n]+)\]\(([\w./-]+)((?:#[^)\s]*)?)\)", lead_from_here, text)


def lead_from_here(link: re.Match[str]) -> str:
    """Return a link of a file above this folder as it is here; only its words if it leads to what has no page."""
    words, target, anchor = link.groups()
    page = INCLUDED.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else "")
    return f"[{words}]({page}{anchor})" if page else words


def is_outside(page: Path, target: str) -> bool:
    path = (page.parent / target).resolve()
    return path.exists() and HERE not in path.parents and path.name not in INCLUDED


def link_page(found: re.Match[str]) -> str:
    return f":doc:`{found[0]} </{found[1]}>`" if (ROOT / found[0]).exists() else found[0]


def leave_out_private_bases(_app: Sphinx, _name: str, _obj: object, _options: object, bases: list[type]) -> None:
    """Name those base classes only that a reader can look up."""
    bases[:] = [base for base in bases if base.__module__ == "builtins" or public_name(base) is not None] or [object]


def name_in_full(_app: Sphinx, doctree: document) -> None:
    """Say which class a bare name means, for two packages have a ``Node``: that of the page, or else of ``iris_py``."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") != "py":
            continue
        target = str(node["reftarget"])
        if target.startswith("iris."):  # as programs import it
            target = f"iris_py.{target.removeprefix('iris.')}"
        name, _, rest = target.partition(".")
        for package in dict.fromkeys((node.get("py:module") or "iris_py", "iris_py")):
            module = importlib.import_module(package)
            if name in getattr(module, "__all__", ()):
                target = ".".join(filter(None, (public_name(getattr(module, name)), rest)))
                break
        node["reftarget"] = target


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: Element) -> reference | Element | None:
    """Link a reference to the public entry of what it names, or show it as code if that exists and has none."""
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"]).removeprefix("~").lstrip(".")
    entry = find_entry(target)
    objects = env.domains.python_domain.objects
    if entry in objects:
        found = objects[entry]
        return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, entry)
    return contnode if is_there(target, node.get("py:module"), node.get("py:class")) else None


def find_entry(target: str) -> str | None:
    """Return the name under which something is in the reference, as ``iris_py.Node`` for ``iris_py.api.node.Node``."""
    found = find_object(target)
    return public_name(found) if isinstance(found, type) or callable(found) else None


def is_there(target: str, *scopes: str | None) -> bool:
    """Tell whether a name exists: in a scope, in some module, or among the names that the sources define and import."""
    words = [each for each in re.split(r"[^\w.]+", target) if each]
    candidates = [*(f"{scope}.{target}" for scope in scopes if scope), target]
    if any(find_object(each) is not None for each in candidates):
        return True
    return all(each.partition(".")[0] in names_of_sources() or find_object(each) is not None for each in words)


def find_object(dotted: str) -> object | None:
    """Return what a dotted name leads to, from the longest module on; None if there is nothing."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except (ImportError, ValueError):
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute, None)
        return cast("object", found)
    return None


@cache
def public_names() -> dict[int, str]:
    """Return the first public name of each object, by its identity."""
    found: dict[int, str] = {}
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            found.setdefault(id(getattr(module, name)), f"{package}.{name}")
    return found


def public_name(thing: object) -> str | None:
    """Return the name under which a reader finds it; None if it is private."""
    return public_names().get(id(thing))


@cache
def names_of_sources() -> frozenset[str]:
    """Return every name that a module of ours defines or imports at its top level, and those of Python itself."""
    found = set(dir(builtins))
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found |= {(alias.asname or alias.name) for alias in node.names}
                elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
                elif isinstance(node, ast.Assign):
                    found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


def check_interface(_app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of every public name that has no entry."""
    entries = env.domains.python_domain.objects
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            known = {f"{package}.{name}", public_name(getattr(module, name))}
            if not known & entries.keys():
                logger.warning("%s.%s is public and has no entry in docs/reference", package, name)
