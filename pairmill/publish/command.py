"""``pairmill publish <result> to=hf://<owner>/<name>``, and ``pairmill publish status``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pairmill import storage
from pairmill.address import HUB
from pairmill.engine.options import option, policy_option
from pairmill.errors import InputError
from pairmill.fields import Checked
from pairmill.formats.opened import open_result
from pairmill.interface import cli
from pairmill.policy.enforce import Enforcer
from pairmill.policy.policy import Policy
from pairmill.policy.warn import warn_of_removed
from pairmill.publish.card import describe
from pairmill.publish.croissant import croissant
from pairmill.publish.refuse import REASONS, Refusal, refusals
from pairmill.publish.summary import summary
from pairmill.publish.target import Remote, Target, target_of
from pairmill.publish.tree import Item, Sums, Tree, all_sums, gather, manifest_item

_SHOWN: Final = 40
_LARGE: Final = 512 << 20


@dataclass(kw_only=True)
class PublishConfig(Checked):
    """Publish a finished result with a card of its data sets; without confirm=true print what would be written."""

    result: str = option(help="the folder to publish: rows, tokens, a plan, arrays or an export")
    to: str = option(
        help="hf://<owner>/<name>[@<branch>], a data set of the Hub, which is made if it does not exist; or a "
        "folder, on this machine or in a bucket"
    )
    confirm: bool = option(False, help="write it; without, nothing is written anywhere")
    private: bool = option(False, help="a new data set of the Hub is private")
    replace: bool = option(False, help="remove files that are there and are not part of it")
    without: list[str] = option(
        [], help="held_out: publish the result without its held-out rows", choices=("held_out",)
    )
    allow: list[str] = option(
        [], help=f"reasons to refuse that do not count this time, of {', '.join(REASONS)}", choices=REASONS
    )
    policy: str = policy_option()
    root: str = option("", help="project folder whose manifests know earlier names of denied files", needs="policy")


@dataclass(frozen=True)
class _Publication:
    """All that is published, with the digests of each file."""

    tree: Tree
    described: tuple[Item, ...]
    sums: dict[str, Sums]

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.tree.items, *self.described)


def run(config: PublishConfig) -> str:
    """Publish, or say what would be; returns the text for the terminal.

    Raises:
        InputError: something keeps it from being published, or what is there in the end is not what was sent.
        UsageError: not a place to publish to, or not such a result.
        StorageError: the Hub or the store does not answer; the same command goes on.
    """
    target, publication = _prepare(config)
    remote = target.compare(publication.items, publication.sums)
    wrong = refusals(publication.tree, _enforcer(config), config.allow)
    if remote.others and not config.replace:
        what = (
            f"{len(remote.others):,} files are there and are not part of this: {', '.join(sorted(remote.others)[:5])}"
        )
        wrong.append(Refusal("others", what, "replace=true removes them, or name another place"))
    if not config.confirm or wrong:
        sys.stdout.write(_preview(config, publication, remote))
        sys.stdout.flush()
        if wrong:
            raise InputError(
                f"{len(wrong)} reasons not to publish this",
                where=publication.tree.opened.uri,
                got="".join(f"\n  {item}" for item in wrong),
            )
        return "\nNothing was written: add confirm=true.\n"
    target.begin()
    late = {item.path for item in publication.described}
    missing = [item for item in publication.items if item.path not in remote.same]
    gone = remote.others if config.replace else frozenset[str]()
    # What says that all is there is written last.
    data, last = ([item for item in missing if (item.path in late) == is_late] for is_late in (False, True))
    message = f"{publication.tree.manifest.stage} {publication.tree.manifest.fingerprint}"
    if data:
        target.put(data, (), message)
    if last or gone:
        target.put(last, gone, message)
    _verify(target, publication)
    version = target.version()
    return f"{target.address}{f'@{version}' if version else ''}\n"


def _prepare(config: PublishConfig) -> tuple[Target, _Publication]:
    target = target_of(config.to, private=config.private)
    result = open_result(config.result, "result")
    if not config.policy:
        warn_of_removed(result)
    tree = gather(result, with_held_out="held_out" not in config.without)
    repository = target.address.removeprefix("hf://datasets/")
    is_hub = target.address.startswith(HUB)
    name = repository if is_hub else storage.name_of(target.address)
    here = "." if storage.scheme(target.address) == "file" else target.address
    url = f"https://huggingface.co/datasets/{repository}" if is_hub else here
    described = (
        *describe(tree, name, target.address if is_hub else here),
        croissant(tree, name, url),
        summary(tree),
        manifest_item(tree),
    )
    return target, _Publication(tree, described, {**tree.sums, **all_sums(described)})


def _enforcer(config: PublishConfig) -> Enforcer | None:
    if not config.policy:
        return None
    root = storage.normalise(config.root, "root") if config.root else ""
    return Enforcer(Policy.load(config.policy), "refuse", root)


def _preview(config: PublishConfig, publication: _Publication, remote: Remote) -> str:
    items, tree = publication.items, publication.tree
    size = sum(item.size for item in items)
    lines = [f"{tree.opened.kind} {tree.manifest.fingerprint} to {config.to}: {len(items):,} files, {size:,} bytes"]
    for item in items[:_SHOWN]:
        state = "there" if item.path in remote.same else "changes" if item.path in remote.differ else "new"
        lines.append(f"  {state:8}{item.size:>16,}  {item.path}")
    if len(items) > _SHOWN:
        lines.append(f"  … and {len(items) - _SHOWN:,} more")
    lines.append(f"{len(remote.same):,} are there, {len(remote.differ):,} differ, the others are new")
    for entry in tree.sets[:_SHOWN]:
        tokens = f"{entry.tokens:,} tokens" if entry.tokens else ""
        lines.append(f"  {entry.name}: {entry.licence or 'licence not stated'}, {entry.rows:,} rows {tokens}".rstrip())
    large = [item for item in items if item.size > _LARGE]
    if large and tree.opened.kind == "rows":
        lines.append(
            f"{len(large):,} files have more than {_LARGE >> 20} MiB, and readers share out files: "
            f"pairmill export {tree.opened.uri} to=datasets output=… writes smaller ones, and publish takes that"
        )
    return "\n".join(lines) + "\n"


def _verify(target: Target, publication: _Publication) -> None:
    remote = target.compare(publication.items, publication.sums)
    wrong = [item.path for item in publication.items if item.path not in remote.same]
    if wrong:
        raise InputError(
            f"{len(wrong):,} of {len(publication.items):,} files are missing there, or differ",
            where=target.address,
            got=", ".join(wrong[:5]),
            expected="sizes and digests of what was sent",
            hint="the same command with confirm=true writes them again",
        )


def status(config: PublishConfig) -> str:
    """Compare what is published with the result, file by file; returns the text for the terminal.

    Raises:
        InputError: files are missing or differ.
    """
    target, publication = _prepare(config)
    _verify(target, publication)
    version = target.version()
    at = f"{target.address}{f'@{version}' if version else ''}"
    return f"{at}: {len(publication.items):,} files are what {publication.tree.opened.uri} has\n"


def main(arguments: Sequence[str]) -> int:
    """Publish what the command line names, as ``result=…`` or first of all; returns the exit code."""
    command = "status" if arguments[:1] == ["status"] else ""
    words = cli.name_first(arguments[1:] if command else arguments, "result")

    def work() -> None:
        config = cli.build(PublishConfig, cli.split(words))
        sys.stdout.write(status(config) if command else run(config))
        sys.stdout.flush()

    commands = () if command else ("status",)
    return cli.program(f"publish {command}".strip(), PublishConfig, words, work, commands)
