"""``pairmill completion``: what a real bash and a real zsh make of the tab key."""

import os
import pty
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from pairmill.interface import completion
from tests.support.helpers import PATIENCE, missing, python

SHELLS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_tab_key(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        missing(shell)
    (tmp_path / "arrays" / "epoch_0").mkdir(parents=True)
    (tmp_path / "config.yaml").touch()
    script = python("-m", "pairmill", "completion", shell)
    assert script.returncode == 0, script.stderr
    typed = {
        "pairmill cle\traw=x": "<clean><raw=x>",
        "pairmill clean prof\tp\t": "<clean><profile=pairmill>",
        "pairmill clean profile=d\t verify=t\t": "<clean><profile=data_io><verify=true>",
        "pairmill tokenize un\t": "<tokenize><union>",
        f"pairmill sample insp\tpath={tmp_path}/arr\t": f"<sample><inspect><path={tmp_path}/arrays>",
        f"pairmill train train_conf\t{tmp_path}/con\t": f"<train><train_config={tmp_path}/config.yaml>",
        "pairmill train_tokenizer vocab_si\t512": "<train_tokenizer><vocab_size=512>",
        "true; pairmill submit wat\t": "<submit><watch>",
        "pairmill init config.\t": "<init><config.yaml>",
        "pairmill clean nonsense=x\t": "<clean><nonsense=x>",
    }
    # The program itself is not needed for it.
    (tmp_path / "start").write_text(f"{script.stdout}\npairmill() {{ printf '<%s>' \"$@\"; echo; }}\n")
    said = terminal(SHELLS[shell], [f". {tmp_path}/start", *typed, "exit"], tmp_path)
    answers = [line.replace("/>", ">") for line in said if re.fullmatch("(<.*>)+", line)]
    assert answers == list(typed.values())


def terminal(program: list[str], lines: list[str], folder: Path) -> list[str]:
    """Type lines into a program on a terminal, each after the answer to the one before; return its lines."""
    ours, theirs = pty.openpty()
    variables = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "PS1": "next> ", "COLUMNS": "4000"}
    with subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, cwd=folder, start_new_session=True
    ) as process:
        os.close(theirs)
        text, end = "", time.monotonic() + PATIENCE
        for number, line in enumerate(lines):
            while text.count("next> ") <= number:
                assert time.monotonic() < end, text
                text += os.read(ours, 65536).decode()
            os.write(ours, line.encode() + b"\n")
        while True:
            try:
                text += os.read(ours, 65536).decode()
            except OSError:  # it has ended
                break
        process.wait(PATIENCE)
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n").splitlines()


def test_a_shell_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(["fish"]) == 2
    assert "got 'fish'; expected bash or zsh" in capsys.readouterr().err
