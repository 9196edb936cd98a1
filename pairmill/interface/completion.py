"""``pairmill completion bash|zsh``: a script that completes commands, options and values without starting pairmill.

``options.tsv`` beside this module has what there is: command, option, type. ``make generate`` writes it.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pairmill.errors import UsageError
from pairmill.interface import cli

TABLE: Final = Path(__file__).with_name("options.tsv")

# `path` and `words` are names that zsh gives a meaning of its own.
_COMMON: Final = r"""
# Of a line up to the cursor: $last is its last word, $known what may be there; empty = files, if $last has a value.
_pairmill_known() {
  local rest=${1#* } word asked=
  last=${1##* }
  rest=${rest%"$last"}
  while [ -n "$rest" ]; do
    word=${rest%% *}
    rest=${rest#"$word"}
    rest=${rest# }
    case $word in '' | *=*) ;; *) asked=${asked:+$asked }$word ;; esac
  done
  case $last in
    *=*) _pairmill_values "$asked ${last%%=*}" ;;
    *) _pairmill_words "$asked" ;;
  esac
}
"""

_BASH: Final = r"""
_pairmill() {
  local IFS=$'\n' last known value
  _pairmill_known "${COMP_LINE:0:COMP_POINT}"
  value=${last#*=}
  case $last in
    *=*)
      if [ -z "$known" ]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$value"))
      else COMPREPLY=($(compgen -W "${known// /$'\n'}" -- "$value")); fi
      # readline replaces what follows = alone, unless somebody has told it otherwise.
      case $COMP_WORDBREAKS in *=*) ;; *) COMPREPLY=("${COMPREPLY[@]/#/${last%%=*}=}") ;; esac ;;
    *)
      COMPREPLY=($(compgen -W "${known// /$'\n'}" -- "$last"))
      case ${COMPREPLY[0]-} in *=) compopt -o nospace 2>/dev/null ;; esac ;;
  esac
}
# Where none fits, it is a file that is given without a name: pairmill init <file>.
complete -o default -F _pairmill pairmill
"""

_ZSH: Final = r"""
_pairmill() {
  local last known
  local -a choices
  _pairmill_known "${(j: :)words[1,CURRENT]}"
  choices=(${=known})
  if [[ $last == *=* ]]; then
    compset -P '*='
    if (( $#choices )); then compadd -a choices; else _files; fi
  else
    compadd -S '' -- ${(M)choices:#*=}
    compadd -- ${choices:#*=}
    (( compstate[nmatches] )) || _files
  fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _pairmill pairmill
"""

_SHELLS: Final = {"bash": _BASH, "zsh": _ZSH}


def script(shell: str, table: str) -> str:
    """Return the script of a shell.

    Args:
        shell: bash or zsh.
        table: lines of command, option and type, separated by tabs; without an option a line names the command alone.
    """
    words: dict[str, list[str]] = {"": []}
    values = {}
    for line in table.splitlines():
        command, option, kind = line.split("\t")
        steps = command.split(" ")
        for number, step in enumerate(steps):
            before, here = " ".join(steps[:number]), " ".join(steps[: number + 1])
            if here not in words:
                words[before].append(step)
                words[here] = []
        if option:
            words[command].append(f"{option}=")
        if not kind.startswith("text"):
            values[f"{command} {option}"] = kind.replace("|", " ").strip() if "|" in kind else " "
    cases = (("words", {key: " ".join(names) for key, names in words.items()}), ("values", values))
    functions = [
        f"_pairmill_{name}() {{\n  known=\n  case $1 in\n"
        + "".join(f"    {shlex.quote(key)}) known={shlex.quote(text)} ;;\n" for key, text in texts.items())
        + "  esac\n}\n"
        for name, texts in cases
    ]
    return "".join(functions) + _COMMON + _SHELLS[shell]


@dataclass
class CompletionConfig:
    """Print a script that completes commands, options and values: eval "$(pairmill completion bash)" in ~/.bashrc."""


def main(arguments: Sequence[str]) -> int:
    """Print the script of the shell that is named; return the exit code."""

    def work() -> None:
        if len(arguments) != 1 or arguments[0] not in _SHELLS:
            hint = 'a line for ~/.bashrc: eval "$(pairmill completion bash)"'
            given = " ".join(arguments)
            raise UsageError("not a shell", where="completion", got=repr(given), expected="bash or zsh", hint=hint)
        sys.stdout.write(script(arguments[0], TABLE.read_text(encoding="utf-8")))

    return cli.program("completion bash|zsh", CompletionConfig, arguments, work)
