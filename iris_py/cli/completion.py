"""Shell completion from local data, without queries to the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_py.cli.output import Output
from iris_py.errors import ConfigurationError
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LINES", "SHELLS", "complete_cluster", "complete_context", "complete_kind", "print_script"]

#: Scripts by which shells call `iris` for completions, in typer's protocol. Users keep them in files, so they outlive the
#: version that wrote them; typer's own scripts are not public.
_SCRIPTS: Final = {
    "bash": r"""_iris_completion() {
    local IFS=$'\n'
    COMPREPLY=( $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _IRIS_COMPLETE=complete_bash "$1") )
}
complete -o default -F _iris_completion iris""",
    "zsh": r"""#compdef iris
_iris_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _IRIS_COMPLETE=complete_zsh iris)
}
compdef _iris_completion iris""",
    "fish": (
        "complete --command iris --no-files"
        ' --arguments "(env _IRIS_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args'
        ' _TYPER_COMPLETE_ARGS=(commandline -cp) iris)"'
        ' --condition "env _IRIS_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args'
        ' _TYPER_COMPLETE_ARGS=(commandline -cp) iris"'
    ),
}
SHELLS: Final = tuple(_SCRIPTS)


class ScriptLine(Line, tag="script"):
    """A completion script for a shell."""

    shell: str
    script: str


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"completion": (ScriptLine,)}


def print_script(shell: str, *, as_json: bool) -> int:
    """Print the completion script of a shell.

    Raises:
        ConfigurationError: The shell is not supported.
    """
    if shell not in SHELLS:
        raise ConfigurationError(f"there is no completion for {shell!r}. Use one of: {', '.join(SHELLS)}.")
    script = _SCRIPTS[shell]
    Output(as_json=as_json).line(ScriptLine(shell, script), script)
    return 0


def complete_context(incomplete: str) -> list[str]:
    """Return the names of contexts that begin with a text."""
    from iris_py.cli.contexts import context_names

    return _beginning(context_names(), incomplete)


def complete_cluster(given: dict[str, Any], incomplete: str) -> list[str]:
    """Return the clusters that begin with a text, out of the configuration's clusters with a secret of their own.

    Args:
        given: The preceding options, by name.
        incomplete: The begin of the name.
    """
    from iris_py.cli.contexts import context_file
    from iris_py.config import load_config

    try:
        context = given.get("context")
        clusters = load_config(config=given.get("config") if context is None else context_file(context)).clusters
    except (ConfigurationError, OSError):
        return []  # running the command reports the error; completion stays silent
    return [] if callable(clusters) else _beginning(clusters, incomplete)


def complete_kind(incomplete: str) -> list[str]:
    """Return the kinds of events that begin with a text."""
    from iris_py.observe.journal import KINDS

    return _beginning(KINDS, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
