"""Data that are a plan of ``sample``: its arrays are made in a folder of this machine, and then trained on.

A plan says which rows an epoch has, and each machine that trains makes the arrays of it in memory. Where the sampler's
DaemonSet has done so, its folder is named. A task of a pipeline has the plan alone, so the arrays are made here, by the
sampler's own command: what is there already it uses again, and several processes of one machine wait for one of them.
"""

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, PairmillError

_SAMPLE, _ARRAYS = "sample", "metadata.json"
_APART = "-holdout"
_KEEP = 1_000_000
"""Older samples that stay: a training removes nobody's."""


class PlanOptions(Protocol):
    """The options that are read here (pairmill/stages/train/config.py)."""

    sampled: list[str]
    held_out: str
    samples_path: str


Options = TypeVar("Options", bound=PlanOptions)


class SamplerFailure(PairmillError):
    """The sampler ended with this code, and said why."""

    def __init__(self, plan: str, exit_code: int) -> None:
        super().__init__("the arrays were not made", where=plan, got=f"exit code {exit_code}", hint="see the log above")
        self.exit_code = exit_code if 0 < exit_code < 128 else 5


def on_this_machine(options: Options) -> Options:
    """Make the arrays of every plan among ``sampled`` and ``held_out``; return the options with their folders.

    Raises:
        InputError: what is in a bucket is not a plan.
        SamplerFailure: the sampler failed: the plan or its tokens are not there, or there is no room.
    """
    here = copy.copy(options)
    here.sampled = [_folder(item, "sampled", lambda: options.samples_path) for item in options.sampled]
    if options.sampled and options.held_out:
        here.held_out = _folder(options.held_out, "held_out", lambda: apart(options.samples_path))
    return here


def held_out_here(held_out: str, samples_path: str) -> str:
    """Make the arrays of a held-out plan alone; return their folder. Anything but a plan is returned as given.

    Raises:
        InputError, SamplerFailure: as :func:`on_this_machine`.
    """
    return _folder(held_out, "held_out", lambda: apart(samples_path))


def apart(samples_path: str) -> str:
    """Return where arrays of held-out rows are: beside those for training, as sample writes them."""
    folder = samples_path.rstrip("/").removesuffix("/{fingerprint}")
    return folder + _APART + samples_path.rstrip("/")[len(folder) :]


def _folder(item: str, option: str, place_of_arrays: Callable[[], str]) -> str:
    """Return the folder with the arrays of ``name=path`` or ``path``."""
    named = re.fullmatch(r"([\w. -]+=)(.+)", item) if option == "sampled" else None
    name, place = named.groups() if named else ("", item)
    uri = storage.normalise(place, option)
    fingerprint = _plan_at(uri, option)
    if not fingerprint:
        return item
    samples_path = place_of_arrays()
    # It prints what the sample has; a training prints where its result is.
    command = [
        sys.executable,
        "-m",
        "pairmill",
        "sample",
        f"plan={uri}",
        f"output_path={samples_path}",
        f"keep={_KEEP}",
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SamplerFailure(uri, done.returncode)
    return name + samples_path.replace("{fingerprint}", fingerprint)


def _plan_at(uri: str, option: str) -> str:
    """Return the fingerprint of a plan; empty for another folder of this machine, which the loader then looks at."""
    result = manifests.read(uri)
    if result is not None and result.stage == _SAMPLE and not storage.store_for(uri).exists(storage.join(uri, _ARRAYS)):
        return result.fingerprint
    if storage.scheme(uri) != "file":
        hint = "arrays are read from a folder of this machine"
        raise InputError("not a plan", where=f"{option}={uri}", expected="<root>/sample/<fingerprint>", hint=hint)
    return ""
