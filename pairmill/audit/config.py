"""Options of ``pairmill audit``."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from pairmill.audit.checks import CHECKS
from pairmill.engine.expect import Expectation
from pairmill.engine.options import PolicyRule, RunConfig, option, policy_on_option, policy_option
from pairmill.errors import UsageError
from pairmill.rules.book import Rules

MEASURES: Final = ("usable", "faulty", "judged", "shared", "unresolved")
"""Shares that may be expected: of judged rows those that are kept; of rows those with a fault, and those judged; of
prompts those that several sources have; of the sources of the plan before those that are gone without a reason."""


@dataclass(kw_only=True)
class AuditConfig(RunConfig):
    """Check a sample of the rows that a plan trains on, as the trainer sees them, and let a model judge them."""

    plan: str = option(
        "", help="finished folder of sample, which may be given without plan=", changes_bytes=False, takes="plan"
    )
    root: str = option(
        "", help="project folder or URI; empty = that of the plan; the result goes to <root>/audit", changes_bytes=False
    )
    tokenized_path: str = option(
        "", help="tokenized folder of the plan, if it is not below the project", changes_bytes=False
    )
    row_folders: list[str] = option(
        [],
        help="folders of the rows that were tokenized, if they are not below the project: their chats are checked, and "
        "verdicts are about their texts",
        changes_bytes=False,
    )
    rows: int = option(100, help="rows of each source; more rows add to the sample of fewer", at_least=1)
    by: Literal["source", "task"] = option("source", help="what the rows are drawn of")
    checks: list[str] = option([], help="checks; empty = all", choices=tuple(CHECKS), unique=True)
    prompts: int = option(
        10_000, help="rows of each source whose prompts are compared with those of other sources; 0 = none", at_least=0
    )
    before: str = option(
        "", help="the plan that this one follows: what became of each of its sources is listed", changes_bytes=False
    )
    successors: list[str] = option(
        [],
        help="with before: sources that others replace, as old=new",
        needs="before",
        parse=lambda text: _successor(text),
    )
    judge: str = option(
        "", help="URL of a server that judges rows, as http://host:8000/v1; empty = none", changes_bytes=False
    )
    model: str = option("", help="its model; empty = its only one", changes_bytes=False, needs="judge")
    judge_mode: Literal["completions", "chat"] = option(
        "completions",
        help="what the judge is asked: /completions with the question, or /chat/completions with it as a message",
        needs="judge",
    )
    revision: str = option("", help="of the model, in your words: another one is asked again", needs="judge")
    judge_prompt: str = option(
        "",
        help="a text file with {prompt} and {response}, and {source} if you like; empty = what is built in",
        changes_bytes=False,
        needs="judge",
    )
    judge_schema: str = option(
        "",
        help="a JSON schema of verdicts, as a file, in which keep is a required boolean; empty = what is built in",
        changes_bytes=False,
        needs="judge",
    )
    judge_rows: int = option(0, help="rows of each source that are judged; 0 = all", at_least=0, needs="judge")
    judge_tokens: int = option(512, help="most tokens of a verdict", at_least=1)
    tries: int = option(3, help="how often a row is asked about until the answer is a verdict", at_least=1)
    max_requests: int = option(0, help="most requests to the judge, earlier runs included; 0 = any number", at_least=0)
    max_tokens: int = option(
        0, help="most tokens that the judge writes, earlier runs included; 0 = any number", at_least=0
    )
    at_once: int = option(16, help="rows that are asked about at the same time", changes_bytes=False, at_least=1)
    key_variable: str = option(
        "OPENAI_API_KEY",
        help="environment variable with the server's key; nothing is sent if it is not set",
        changes_bytes=False,
    )
    expect: list[str] = option(
        [],
        help=f"what fails the audit, as usable: >=80%; of {', '.join(MEASURES)}, all of them shares",
        changes_bytes=False,
        parse=lambda text: _expectation(dict([_pair(text)])),
    )
    rules: str = option(
        "", help="rule file whose expect: {usable: …, faulty: …} is held against its tasks", changes_bytes=False
    )
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()

    @property
    def expectation(self) -> Expectation | None:
        """What is expected of all rows together."""
        return _expectation(dict(map(_pair, self.expect))) if self.expect else None

    @property
    def followed(self) -> dict[str, str]:
        """By source of the plan before the one that replaces it."""
        return dict(map(_successor, self.successors))

    @cached_property
    def rule_file(self) -> Rules | None:
        """The rules; None without a file."""
        return Rules.load(self.rules, "pairmill", "rules") if self.rules else None


def _successor(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not old.strip() or not new.strip():
        raise UsageError("not a successor", where="successors", got=repr(text), expected="old=new")
    return old.strip(), new.strip()


def _pair(text: str) -> tuple[str, str]:
    name, _, bound = text.partition(":")
    return name.strip(), bound.strip()


def _expectation(bounds: dict[str, str]) -> Expectation:
    return Expectation.parse(bounds, "expect", MEASURES)
