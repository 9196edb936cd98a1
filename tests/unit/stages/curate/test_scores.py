"""Attributes of models: their columns, values, rules, and what their settings refuse."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.stages.curate.scores.classifiers import ClassifierSettings, LabelRule
from pairmill.stages.curate.scores.language import LanguageSettings, chosen_texts
from pairmill.stages.curate.scores.perplexity import PerplexitySettings, normalise_ccnet
from pairmill.stages.curate.settings import Settings
from tests.support.nets.models import batch_of, use_kenlm, write_fasttext, write_onnx, write_tokenizer

ENGLISH, GERMAN = "the the of the house " * 3, "der die der das Haus " * 3


@pytest.fixture
def lid(tmp_path: Path) -> str:
    path = tmp_path / "lid.bin"
    write_fasttext(path, ["en", "de"], ["the", "der"], [[9, 0], [0, 9]])
    return str(path)


def test_the_language_is_that_of_the_first_text_that_has_one(lid: str) -> None:
    (scorer,) = LanguageSettings(mode="report", model=lid).scorers("")
    instructions = [GERMAN, GERMAN, "der der der der", "1 + 1", "{}"]
    responses = [ENGLISH, "42", "der der der der", "2", "x = y + 10; " * 20]
    with pickle.loads(pickle.dumps(scorer)).opened() as score:
        scored = score(batch_of(responses, instructions))
    languages, p = (column.to_pylist() for column in scored.columns)
    assert languages == ["en", "de", "de", "und", "und"]
    assert [one is None for one in p] == [False, False, False, True, True]
    assert scored.counts == {"language de": 2, "language en": 1, "language und": 2}


def test_vowel_signs_are_letters_and_long_texts_are_cut() -> None:
    hindi = "नमस्ते दुनिया यह हिन्दी में लिखा है"
    assert chosen_texts([""], [hindi]) == [hindi]
    assert chosen_texts([""], ["1" * 2000 + ENGLISH]) == [None]
    (chosen,) = chosen_texts([""], ["ab\n" * 1000])
    assert chosen is not None
    assert len(chosen) == 2000
    assert "\n" not in chosen


def test_undetermined_rows_are_kept(lid: str) -> None:
    one, other = LanguageSettings(mode="drop", model=lid, keep=["en"]).rules()
    (scorer,) = LanguageSettings(mode="drop", model=lid).scorers("")
    with scorer.opened() as score:
        columns = dict(zip(scorer.types(), score(batch_of([ENGLISH, GERMAN, "12"])).columns, strict=True))
    assert one.broken_by(columns[one.attribute]).tolist() == [False, True, False]
    assert not other.broken_by(columns[other.attribute]).any()


def test_onnx_models_of_any_input_names_and_both_activations(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer.json", ["good", "bad"])
    write_onnx(tmp_path / "model.onnx", [[0, 0], [4, 0], [0, 4]], ["input_ids", "attention_mask"])
    texts = ["good", "bad", "good bad", "", "good " * 5000]

    def scored(**options: Any) -> list[list[Any]]:
        settings = ClassifierSettings(name="q", kind="onnx", labels=["up", "down"], field="response", **options)
        (scorer,) = settings.scorers("")
        assert list(scorer.types()) == ["r_q_up", "r_q_down", "q"]
        with scorer.opened() as score:
            return [column.to_pylist() for column in score(batch_of(texts)).columns]

    e4 = math.exp(4)
    up, down, best = scored(model=str(tmp_path))
    assert up[:3] == pytest.approx([e4 / (e4 + 1), 1 / (e4 + 1), 0.5], abs=1e-6)
    assert [one + other for one, other in zip(up[:3], down[:3], strict=True)] == pytest.approx([1, 1, 1], abs=1e-6)
    assert best[:3] == ["up", "down", "up"]
    assert up[4] == up[0]
    write_onnx(tmp_path / "other.onnx", [[0, 0], [4, 0], [0, 4]], ["words"])
    up, *_ = scored(
        model=str(tmp_path / "other.onnx"),
        tokenizer=str(tmp_path / "tokenizer.json"),
        inputs={"words": "ids"},
        activation="sigmoid",
        lowercase=True,
    )
    assert up[:2] == pytest.approx([1 / (1 + math.exp(-4)), 0.5], abs=1e-6)


def test_rules_name_the_column_of_the_label() -> None:
    settings = ClassifierSettings(
        name="toxic",
        kind="fasttext",
        model="m",
        labels=["yes", "no"],
        field="both",
        rules_=[LabelRule(label="yes", max=0.5)],
    )
    assert [(rule.name, rule.attribute, rule.min, rule.max) for rule in settings.rules()] == [
        ("p_toxic_yes", "p_toxic_yes", None, 0.5)
    ]
    assert [rule.attribute for rule in PerplexitySettings(fields=["response"]).rules()] == ["r_perplexity"]


def test_a_label_that_the_model_lacks_is_refused_with_its_labels(lid: str) -> None:
    settings = ClassifierSettings(name="a", kind="fasttext", model=lid, labels=["en", "fr"])
    with pytest.raises(Exception, match=r"no label 'fr'; expected en, de"), settings.scorers("")[0].opened():
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("language: {mode: report}", "mode: needs model"),
        ("language: {mode: report, model: a, min_p: 2}", "line 1.*min_p.*out of range"),
        ("language: {keep: []}", "keep.*is empty"),
        ("perplexity: {mode: drop}", "mode: needs model"),
        ("perplexity: {tokenizer: bpe}", r"tokenizer: not a valid value; got 'bpe'; expected none, or sentencepiece:"),
        ("perplexity: {max: 0}", "out of range"),
        ("perplexity: {fields: [response, response]}", "fields.2.: occurs twice; got 'response'; expected each once"),
        ("perplexity: {fields: [answer]}", "unknown value.*answer"),
        ("classifiers: [{name: a b, kind: logit, model: m}]", "name: not a valid value; got 'a b'"),
        ("classifiers: [{name: near, kind: logit, model: m}]", "not a valid name"),
        ("classifiers: [{name: a, kind: svm, model: m}]", "unknown value.*svm"),
        ("classifiers: [{name: a, kind: fasttext, model: m}]", "labels: is empty"),
        ("classifiers: [{name: a, kind: logit, model: m, labels: [b]}]", "not two labels"),
        ("classifiers: [{name: a, kind: logit, model: m, rules: [{label: god, min: 1}]}]", "did you mean 'good'"),
        (
            "classifiers: [{name: a, kind: logit, model: m, rules: [{label: good}]}]",
            "rules.1.: one or more of min, max is required",
        ),
        (
            "classifiers: [{name: a, kind: onnx, model: m, labels: [b], inputs: {x: y}}]",
            "inputs.x: unknown value; got 'y'; expected ids, mask or types",
        ),
        ("classifiers: [{name: a, kind: onnx, model: m, labels: [b], max_tokens: 0}]", "max_tokens.*out of range"),
    ],
)
def test_settings_are_refused_with_their_place(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){said}"):
        Settings.parse(text)


def test_an_onnx_file_needs_a_tokenizer(tmp_path: Path) -> None:
    write_onnx(tmp_path / "model.onnx", [[0.0]])
    settings = ClassifierSettings(name="a", kind="onnx", model=str(tmp_path / "model.onnx"), labels=["b"])
    with pytest.raises(UsageError, match=r"classifiers\.a\.tokenizer: the tokenizer is not given"):
        settings.scorers("")


ARPA = """\\data\\
ngram 1=6
ngram 2=1

\\1-grams:
-1\t<unk>
0\t<s>\t0
-1\t</s>
-0.5\ta0.\t0
-0.25\t\u2581a\t0
-0.25\t\u2581\t0

\\2-grams:
-1\t<s> </s>

\\end\\
"""


def test_perplexity_by_line_field_and_normaliser(tmp_path: Path) -> None:
    use_kenlm()
    path = tmp_path / "model.arpa"
    path.write_text(ARPA)
    (scorer,) = PerplexitySettings(
        mode="report", model=str(path), normalise="ccnet", fields=["response", "both"]
    ).scorers("")
    with scorer.opened() as score:
        found, both = (one.to_pylist() for one in score(batch_of(["A1。\n\n a7. ", " \n", "b"], ["", "", "b"])).columns)
    assert found == [pytest.approx(10**0.75), None, pytest.approx(10.0)]
    assert both == [pytest.approx(10**0.75), None, pytest.approx(10.0)]


def test_perplexity_over_pieces(tmp_path: Path) -> None:
    use_kenlm()
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    text = tmp_path / "text.txt"
    text.write_text("a b c a a b\n" * 50)
    prefix = str(tmp_path / "pieces")
    SentencePieceTrainer.train(
        input=str(text), model_prefix=prefix, vocab_size=10, hard_vocab_limit=False, minloglevel=2
    )
    path = tmp_path / "model.arpa"
    path.write_text(ARPA)
    plain = PerplexitySettings(mode="report", model=str(path), fields=["response"])
    pieces = PerplexitySettings(
        mode="report", model=str(path), tokenizer=f"sentencepiece:{prefix}.model", fields=["response"]
    )
    found = []
    for settings in (plain, pieces):
        (scorer,) = settings.scorers("")
        with scorer.opened() as score:
            found.append(score(batch_of(["a", ""])).columns[0].to_pylist())
    cut = SentencePieceProcessor(model_file=f"{prefix}.model").encode("a", out_type=str)
    total = 1 + sum(0.25 if piece in ("\u2581", "\u2581a") else 1 for piece in cut)
    assert cut[0] in ("\u2581", "\u2581a")
    assert found == [[pytest.approx(10.0), None], [pytest.approx(10 ** (total / (len(cut) + 1))), None]]
    assert plain.scorers("")[0].identity() != pieces.scorers("")[0].identity()


def test_the_normaliser_maps_what_it_says() -> None:
    assert normalise_ccnet(" Price：１23“x”…\x07—Y ") == 'price:000"x"... - y'
