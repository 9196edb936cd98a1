"""``long_context: split``: what is counted and said, what pieces are to rules, and how their tokens are read."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.characters import continuing
from pairmill.formats.split import Cutter
from pairmill.formats.tokens import INDEX, Array
from pairmill.interface.cli import Outcome
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draft import Draft
from pairmill.stages.sample.node import materialize as module
from pairmill.stages.sample.run import run
from tests.support import tools
from tests.support.data import split_characters
from tests.support.data.split_characters import Vocabulary
from tests.support.helpers import writable

Span = tuple[int, ...]
LONG = "日本語 é🙂 and some words, " * 40


@dataclass
class Bench:
    """A tokenized folder of a document longer than the context, one that fits, a short pair, and a pair with a long
    answer."""

    folder: Path

    def __post_init__(self) -> None:
        self.vocabulary = Vocabulary([LONG.encode()[at : at + 3] for at in range(0, 90, 2)])
        asked = [self.vocabulary.added[split_characters.BOQ], self.vocabulary.added[split_characters.EOQ]]
        question = [*asked[:1], *self.vocabulary.encode("what?", [2])[:-1], *asked[1:]]
        self.rows = {
            "docs": [(asked, self.text(LONG)), (asked, self.text("short"))],
            "pairs": [(question, self.text("an answer")), (question, self.text(LONG[:200]))],
        }
        split_characters.write(self.folder / "tokenized", self.vocabulary, self.rows)
        self.rules([{"prefix": "", "long_context": "split"}])

    def text(self, text: str) -> list[int]:
        return self.vocabulary.encode(text, [3, 1, 2])

    def rules(self, items: list[dict[str, Any]]) -> None:
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(items))

    def config(self, **options: Any) -> SampleConfig:
        values = {
            "tokenized_path": str(self.folder / "tokenized"),
            "output_path": str(self.folder / "sampled"),
            "prefix_config_path": str(self.folder / "rules.yaml"),
            "epochs": 1,
            "context_size": 64,
        }
        return SampleConfig(**{**values, **options})

    def run(self, **options: Any) -> Outcome:
        return run(self.config(**options))

    def pieces(self, name: str, context: int = 64) -> list[tuple[Span, Span]]:
        """Those of a task, in order."""
        found = []
        for asked, answer in self.rows[name]:
            texts = [self.vocabulary.text([token]) for token in answer]
            lengths = split_characters.naive(texts, context - len(asked), 2)
            at = 0
            for length in lengths:
                assert isinstance(length, int)
                found.append((tuple(asked), tuple(answer[at : at + length])))
                at += length
        return found

    def epoch(self, number: int = 0, target: str = "sampled") -> Counter[tuple[Span, Span]]:
        top = self.folder / target
        tokens = np.load(top / "tokens.npy")
        columns = [np.load(top / f"epoch_{number}/{part}.npy").tolist() for part in INDEX]
        return Counter(
            (tuple(tokens[a : a + b].tolist()), tuple(tokens[c : c + d].tolist()))
            for a, b, c, d in zip(*columns, strict=True)
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_rows_pieces_and_tokens_are_counted_and_said_everywhere(bench: Bench) -> None:
    outcome = bench.run(epochs=2)
    docs, pairs = bench.pieces("docs"), bench.pieces("pairs")
    assert (len(docs) > 8, len(pairs) > 2) == (True, True)
    assert bench.epoch() == bench.epoch(1) == Counter(docs) + Counter(pairs)
    made = manifests.read(str(bench.folder / "sampled"))
    assert made is not None
    ledger = made.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.dropped) == (4, 4, {})
    assert ledger.rows_out == 2 * (len(docs) + len(pairs))
    assert ledger.notes == {"split": 2}
    whole = len(bench.rows["docs"][0][1]) + len(bench.rows["pairs"][1][1])
    repeated = 2 * (len(docs) - 2) + len(pairs[0][0]) * (len(pairs) - 2)
    pieces = len(docs) + len(pairs) - 2
    assert {name: ledger.measures[name] for name in ("split_pieces", "split_tokens", "repeated_tokens")} == {
        "split_pieces": pieces,
        "split_tokens": whole,
        "repeated_tokens": repeated,
    }
    assert made.shards["docs"].notes == {"split": 1}
    assert made.shards["docs"].measures["split_pieces"] == len(docs) - 1

    tokens = sum(len(asked) + len(answer) for asked, answer in docs + pairs)
    assert f"**Rows Split at the Context:** 2 out of 4 (50.00%), into {pieces} pieces" in outcome.stdout
    assert f"**Tokens Split:** {whole} out of {tokens:,} (" in outcome.stdout
    assert f"and {repeated} of instructions repeated" in outcome.stdout
    slots = 2 * 64 * (len(docs) + len(pairs))
    assert f"**Padding if Rows Are Not Packed:** {slots - 2 * tokens:,} out of {slots:,} (" in outcome.stdout
    assert f"| **docs** | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | {len(docs) - 1} | {len(bench.rows['docs'][0][1])} |" in (
        outcome.stdout
    )
    metrics = outcome.metrics
    assert (metrics["split_rows"], metrics["split_pieces"], metrics["split_tokens"]) == (2, pieces, whole)
    assert metrics["padded_tokens_unpacked"] == 2 * (64 * (len(docs) + len(pairs)) - tokens)
    report = outcome.report()
    assert (
        f"2 rows are longer than the context and were split into {pieces} pieces: {whole} response tokens, and "
        f"{repeated} of instructions repeated." in report.look_at
    )
    said = report.markdown()
    assert f"- **Rows split**: 2 into {pieces} pieces" in said
    assert "- **Padding if rows are not packed**: " in said
    assert "| docs | split | 1 |" in said


def test_nothing_is_said_of_pieces_where_no_row_is_split(bench: Bench) -> None:
    fits = bench.run(context_size=4096)
    bench.rules([])
    plain = bench.run(context_size=4096)
    assert fits.stdout == plain.stdout
    assert "plit" not in plain.stdout + plain.report().markdown()
    assert bench.epoch() == Counter(bench.pieces("docs", 4096)) + Counter(bench.pieces("pairs", 4096))
    made = manifests.read(str(bench.folder / "sampled"))
    assert made is not None
    assert not {"split_pieces", "split_tokens", "repeated_tokens"} & made.ledger.measures.keys()
    assert [ref.role for ref in made.inputs] == ["tokenized", "rules"]


def test_pieces_are_rows_to_the_other_keys_of_a_rule(bench: Bench) -> None:
    pieces = bench.pieces("docs")
    bench.rules([{"prefix": "docs", "long_context": "split", "max_per_file": 3, "repeat": 2}])
    outcome = bench.run()
    taken = Counter({row: count for row, count in bench.epoch().items() if row in pieces})
    assert (sum(taken.values()), set(taken) <= set(pieces)) == (6, True)
    # A row is kept if one of its pieces is sampled.
    ledger = json.loads(outcome.manifest())["shards"]["docs"]
    kept = len({row[1] == pieces[-1][1] for row in taken})
    assert (ledger["rows_in"], ledger["rows_kept"], ledger["rows_out"]) == (2, kept, 6)
    assert sum(ledger["dropped"].values()) == 2 - kept

    bench.rules([{"prefix": "docs", "long_context": "split", "max_response_tokens_per_file": 100}])
    bench.run()
    answers = [len(answer) for asked, answer in bench.epoch() if (asked, answer) in pieces]
    assert 100 <= sum(answers) < 100 + 64


def test_rows_that_cannot_be_split_are_dropped_for_a_reason(bench: Bench) -> None:
    three = {"docs": [([0], bench.vocabulary.encode("日日日日", [1])), ([0], bench.vocabulary.encode("abcdef", [1]))]}
    split_characters.write(bench.folder / "tokenized", bench.vocabulary, three)
    outcome = bench.run(context_size=3, min_resp_length=1)
    ledger = json.loads(outcome.manifest())["ledger"]
    assert ledger["dropped"] == {"character_over_context": 1, "over_context": 2}
    assert "Character over context" in outcome.stdout
    assert sorted(len(answer) for _, answer in bench.epoch()) == [1, 2, 2, 2]
    with pytest.raises(InputError, match=r"response too short once cut.*the shortest row needs"):
        bench.run(context_size=3, min_resp_length=6)


def test_the_context_that_is_named_is_enough(bench: Bench) -> None:
    with pytest.raises(InputError, match="raise context_size=1:") as caught:
        bench.run(context_size=1)
    least = int(caught.value.hint.rsplit(" ", 1)[1])
    assert bench.run(context_size=least).metrics["rows_kept"] > 0


def test_a_folder_without_its_tokenizer_is_refused_and_another_tokenizer_is_another_sample(bench: Bench) -> None:
    first = json.loads(bench.run().manifest())["fingerprint"]
    path = bench.folder / "tokenized" / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b"\n")
    assert json.loads(bench.run().manifest())["fingerprint"] != first
    path.unlink()
    with pytest.raises(InputError, match=r"a rule splits rows.*no tokenizer.json.*copy it into the folder") as caught:
        bench.run()
    assert caught.value.exit_code == 3
    bench.rules([{"prefix": "others", "long_context": "split"}])
    bench.run()  # no task's rule splits


def test_a_token_that_the_tokenizer_lacks_is_refused(bench: Bench) -> None:
    path = bench.folder / "tokenized" / "docs" / "tokens.npy"
    tokens = np.load(path)
    tokens[: len(tokens) // 2] = 5000
    np.save(path, tokens)
    with pytest.raises(InputError, match=r"docs/tokens.npy: a token is outside the vocabulary; got 5000; expected bel"):
        bench.run()


def test_data_io_has_no_such_value(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"long_context is not valid; got 'split'; expected truncate or drop"):
        bench.run(profile="data_io")


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("local", [True, False])
def test_a_plan_of_pieces_gives_one_sample_however_it_is_read(
    bench: Bench, small: bool, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files or as of a store whose objects are no files; by any number of threads; in either layout."""
    root = str(bench.folder / "root")
    bench.run(root=root, output_path="")
    expected = Counter(bench.pieces("docs")) + Counter(bench.pieces("pairs"))
    if small:
        monkeypatch.setattr(module, "CHUNK_TOKENS", 90)
        monkeypatch.setattr(module, "STEP", 32)
        monkeypatch.setattr(module._Readers, "max_gap", lambda _: 70)
    if not local:
        monkeypatch.setattr(storage.LocalStore, "file", lambda *_: None)
    (home,) = (bench.folder / "root" / "sample").glob("????????????????")
    written = []
    for workers in (1, 4):
        out = bench.folder / f"out{workers}"
        run(
            SampleConfig(
                plan=home.name,
                root=root,
                output_path=str(out),
                workers=workers,
                tokenized_path=bench.config().tokenized_path,
            )
        )
        assert bench.epoch(0, out.name) == expected
        written.append(tools.digests(out)["tokens.npy"])
    assert len(set(written)) == 1
    # The response is written once, the instruction once for each piece.
    assert len(np.load(out / "tokens.npy")) == sum(len(a) + len(b) for a, b in expected.elements())
    out = bench.folder / "whole"
    run(
        SampleConfig(
            plan=home.name,
            root=root,
            output_path=str(out),
            layout="data_io",
            tokenized_path=bench.config().tokenized_path,
        )
    )
    assert bench.epoch(0, out.name) == expected
    assert len(np.load(out / "tokens.npy")) == sum(len(a) + len(b) for rows in bench.rows.values() for a, b in rows)
    # The same plan is made however the places of cuts are read.
    draft = Draft.from_config(bench.config())
    assert (
        draft.sample().plan().rows["resp_start"].array().tolist() == np.load(home / "plan" / "resp_start.npy").tolist()
    )


class Counting:
    """A file that counts what is read of it, and gives at most some bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.read_bytes, self.reads = data, 0, 0, 0

    def seek(self, offset: int) -> int:
        self.at = offset
        return offset

    def read(self, size: int) -> bytes:
        found = self.data[self.at : self.at + min(size, 999)]
        self.at += len(found)
        self.read_bytes, self.reads = self.read_bytes + len(found), self.reads + 1
        return found


@pytest.mark.parametrize("ahead", [0, 4000])
def test_tokens_are_read_near_cuts_only_or_once_in_blocks(tmp_path: Path, ahead: int) -> None:
    vocabulary = Vocabulary()
    ids = vocabulary.encode("日本語🙂" * 10_000, [1])
    np.save(tmp_path / "tokens.npy", np.array(ids, np.uint32))
    file = Counting((tmp_path / "tokens.npy").read_bytes())
    cutter = Cutter(Array.open(str(tmp_path / "tokens.npy")), continuing(vocabulary.json(), "x"), file)  # type: ignore[arg-type]
    cutter._ahead = ahead
    lengths = cutter.cut(0, len(ids), 1000, 2)
    assert sum(lengths) == len(ids)
    assert max(lengths) <= 1000
    size = 4 * len(ids)
    assert file.read_bytes <= (1.01 * size + 4 * ahead if ahead else 16 * len(lengths))
    assert len(cutter._block) <= 4 * 2 * ahead + 64


def test_tokens_that_are_damaged_are_refused(bench: Bench, tmp_path: Path) -> None:
    """The plan reads what the manifest says: a tokenizer or tokens of other bytes fail it."""
    rows = tmp_path / "rows"
    tools.write_rows(rows / "docs.jsonl", [("", "", LONG), ("", "", "short")])
    root = tmp_path / "root"
    tokenizer = tools.folder(tools.stage("train_tokenizer", rows=rows, root=root, vocab_size=300, profile="pairmill"))
    tokenized = tools.folder(tools.stage("tokenize", rows=rows, tokenizer=tokenizer, root=root))
    config = {"tokenized_path": str(tokenized), "context_size": 32}
    outcome = bench.run(**config)
    assert outcome.metrics["split_rows"] == 1
    assert json.loads(outcome.manifest())["inputs"][2]["role"] == "tokenizer"
    path = writable(tokenized / "tokenizer.json")
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(InputError, match=r"tokenizer.json: is not what its manifest says"):
        bench.run(**config, seed=1)
