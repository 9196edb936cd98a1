"""What a stranger or a mistake may put into a file, an option, a template, a card or an answer of a server.

Each is refused, or taken: exit codes 0, 2, 3 and 4, in bounded memory and time.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import yaml

from pairmill.evaluation.settings import EvaluateSettings
from pairmill.mixture.settings import MixSettings
from pairmill.stages.curate.settings import Settings as CurateSettings
from pairmill.stages.search.settings import SearchSettings
from pairmill.stages.select.settings import Settings as SelectSettings
from pairmill.training.settings import default_file as train_file
from tests.fuzz.play import Play
from tests.fuzz.process import Process, Wrong
from tests.fuzz.scene import CHATS, QUIZ
from tests.support import tools

MEMORY = 640 << 20
"""Bytes that a stage over some rows may take, above what it has imported."""
SECONDS = 60.0

DEEP = 100_000
VALUES = (
    "null", "true", "''", "x", "0", "-1", "1.5", "'1'", "[]", "{}", "[x]", "{a: b}", "[[]]", "2020-01-01", "9" * 400,
    "-" + "9" * 400, str(2**63), str(2**64), str(-(2**63) - 1), str(2**31), "1e308", "1e999", ".inf", ".nan",
    r'"\ud800"', r'"a\0b"', r'"\u202e"', r'"\x1b[2J"', "'" + "x" * 100_000 + "'", "'../../../etc/passwd'",
    "'/dev/zero'", "[" * 900 + "]" * 900, "[" * DEEP, "[" * DEEP + "]" * DEEP, "{a: " * 400 + "1" + "}" * 400,
    "!!python/object:os.system {}", "!!binary aGk=", "&a [*a]", "*a", "!x y", "? [a]", "'${oc.env:HOME}'", "'{x'",
    "'s3://'", "'{question|'", "'a[0'", "1_000", "0x1F", "0b1", "1:30", "~", "yes", "off", "'" + "(" * 3000 + "'",
    "'" + "not " * 9000 + "'",
)  # fmt: skip
"""Texts of values in YAML."""
TARGET = {"name": "some", "rows": "<given>/target"}
SCORE = [{"attribute": "heuristics.i_words", "weight": 1}]
_VALUES = (
    *(r'"\ud800"', r'"\u0000"', "9" * 400, "1e999", "NaN", "-0.0", "[]", "{}", "null", f'"{"x" * 90_000}"', "true"),
    *("[" * 900 + "]" * 900, '{"a": ' * 900 + "1" + "}" * 900, '"a", "question": "c"', '"<|im_end|>"'),
)
_RECORD = '{"question": %, "answer": "b", "score": %, "messages": [{"role": "user", "content": %}, {"role": %}]}'
_USER, _ASSISTANT = (f'{{"role": "{role}", "content": "a"}}, ' for role in ("user", "assistant"))
RECORDS = (
    b'{"question": "a", "answer": "b", "score": 1, "messages": []}',
    *(_RECORD.replace("%", value).encode() for value in _VALUES),
    *(b"[" * DEEP, b'{"question": ' * DEEP, b"9" * 5000, b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{", b"", b"\0", b"[]"),
    *(f'{{"messages": [{_USER * 9000}{_ASSISTANT}{{}}]}}'.encode(), f'{{"messages": [{_USER}'.encode()),
    f'{{"messages": [{(_USER + _ASSISTANT) * 3000}{{}}]}}'.encode(),
)
"""Lines of raw files."""
BASES: dict[str, tuple[Any, ...]] = {
    "curate": (
        yaml.safe_load(CurateSettings.default_file()),
        {"filter": {"mode": "drop", "rules": [{"name": "a", "attribute": "heuristics.i_words", "min": 1, "max": 99}]}},
        {"heuristics": {"rules": [{"metric": "words", "field": "instruction", "min": 1, "max": 9, "name": "a"}]}},
        {"overrides": [{"prefix": "quiz", "near": "report", "heuristics": {"mode": "drop"}}]},
        {"decontaminate": {"benchmarks": [{"name": "b", "uri": "<given>/quiz", "question": "question",
            "answers": "answer", "choices": "", "where": "score > 0", "files": ["*.jsonl"]}]}},
        {"near": {"documents": {"jaccard": 0.5}, "bands": 4, "rows": 2}},
        {"exact": {"max_responses_per_instruction": 1}, "pii": "redact"},
    ),
    "select": (
        yaml.safe_load(SelectSettings.default_file()),
        {"method": "hybrid", "share": 0.5, "dsir": {"targets": [TARGET], "ngrams": 2, "buckets": 100, "laplace": 0.5},
         "attributes": {"score": SCORE}, "hybrid": {"lambda": 0.3}},
        {"method": "attributes", "rows": 5, "attributes": {"score": SCORE, "choose": "sample", "tau": 0.5,
            "group_by": "heuristics.i_words", "edges": [2, 5], "quota": {"method": "exponent", "exponent": 0.5}}},
        {"method": "filter_then_dsir", "tokens": 50, "allow_unfilled": True, "dsir": {"targets": [TARGET]},
         "attributes": {"where": [{"attribute": "source.score", "min": 0, "max": 1}]}},
    ),
    "mix": (
        yaml.safe_load(MixSettings.default_file()),
        {"method": "weights", "weights": {"a": 1, "b": 2}, "others": "leave", "caps": {"a": 2}, "budget": 200,
         "allow_unfilled": True,
         "sources": [{"name": "a", "prefixes": ["quiz"]}, {"name": "b", "prefixes": ["chats"]}]},
        {"method": "temperature", "temperature": 2, "max_epochs": 3, "within": "unimax"},
        {"method": "unimax",
         "phases": [{"name": "one", "until": 0.5}, {"name": "two", "until": 1.0, "method": "english"}]},
        {"method": "unimax", "buckets": {"attributes": [{"attribute": "source.score", "edges": [0.3, 0.7]}]}},
    ),
    "rules": ([{"prefix": "quiz", "max_per_file": 3, "repeat": 2, "long_context": "split",
        "max_response_tokens_per_file": 9}],),
    "quiz": (yaml.safe_load(QUIZ), {**yaml.safe_load(QUIZ), "tags": ["x=<|x|>"], "limit": 3, "where": "score > 0.1",
        "format": "parquet", "strip": True, "encoding": "utf-8",
        "attributes": {"s": {"path": "score", "type": "number"}}},
        {**yaml.safe_load(QUIZ), "files": "quiz/a.db", "query": "SELECT * FROM a ORDER BY 1", "header": ["question"]},
        {**yaml.safe_load(QUIZ), "files": "quiz/a.xlsx", "sheet": "a", "header": ["question", "answer", "score"]}),
    "chats": ({**yaml.safe_load(CHATS), "template": "{{ messages }}", "answers": "all", "roles": {"a": "user"},
        "role": "role", "content": "content"},
        {**yaml.safe_load(CHATS), "answer": {"path": "ground_truth", "template": "<{answer}>"}, "json": "lenient"},
        {"name": "chats", "files": "chats/*.jsonl", "use": "prompts", "turns": "messages", "answer": {"path": "id"}},
        {"name": "chats", "files": "chats/*.jsonl", "use": "pairs", "roles": {"a": "user"}},
        {"name": "chats", "files": "chats/*.jsonl", "condition": "synth", "pairs": "chosen_as_answer"}),
    "train settings": (yaml.safe_load(train_file()),),
    "search settings": (yaml.safe_load(SearchSettings.default_file()),),
    "evaluate settings": (
        yaml.safe_load(EvaluateSettings.default_file()),
        {"benchmarks": {"gsm8k": {"max_tokens": 3}}},
    ),
}  # fmt: skip
"""Files that say something, by what they are."""
OPTIONS = {
    "clean": (
        "on_long_record",
        "max_expansion",
        "limit",
        "holdout",
        "max_reject_fraction",
        "turns",
        "source_options",
        "max_record_bytes",
        "share",
        "finish",
    ),
    "curate": ("index", "max_record_bytes", "share", "finish", "write_index"),
    "select": ("seed", "share", "finish", "max_record_bytes"),
    "train_tokenizer": ("vocab_size", "special_tokens", "tokenizer_type", "truncate_len", "limit_mul_factor", "seed"),
    "tokenize": ("template", "boq", "eoq", "eoa", "conditions", "windows", "eod", "tokenizer", "tokens"),
    "mix": ("epochs", "context_size", "min_resp_length", "seed", "compare"),
    "sample": ("mixture", "again", "seed", "epochs", "context_size", "min_resp_length", "plan", "profile"),
}
"""Options of stages."""
TEXTS = (
    "", "0", "-1", "1e400", "9" * 400, str(2**53), str(2**63), "nan", "inf", "\udcff", "\ud800", "x\0y", "a" * 300,
    "/", "/dev/zero", "../..", "a,b", "\\,", "=", "${x}", "[" * 900, "true", "null", "0/0", "1/1", "2/1", "quiz.x=1",
    "s3://", "~", "unigram",
)  # fmt: skip
"""Values of options."""
TEMPLATES = (
    "{{ messages }}", "{{ messages|tojson }}", "{% for m in messages %}{{ m.content }}{% endfor %}", "{{ 'a' * N }}",
    "{{ ('あ' * N)|list }}", "{{ ('a' * N)|length }}", "{% for i in range(N) %}x{% endfor %}", "{{ N ** N }}",
    "{{ 1 << N }}", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "{{ messages|map(attribute='content')|join('a' * N) }}", "{{ ''.__class__.__mro__ }}", "{{ [0] * N }}",
    "{{ ([0] * N)|sum }}", "{{ 'a'|center(N) }}", "{{ '%Nd' % 1 }}", "{{ raise_exception('\\ud800') }}",
    "{{ 'aa'|replace('a', 'b' * N) }}", "{% set x = ['a' * N] * N %}{{ x|join }}",
    "{% set ns = namespace(a='a') %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a }}",
    "{% if %}", "{{ messages|sort(attribute='content')|list }}", "{{ ('a,' * N).split(',') }}",
    "{{ ('a' * N)|wordwrap(1) }}", "{{ x.y }}", "{{ ('a' * N)|reverse }}", "{{ ('a' * N)|upper|lower|title }}",
    "{{ ('<' * N)|escape }}", "{{ range(N)|list }}", "{{", "{{ ('a ' * N)|wordcount }}", "{{ dict(a=1)|dictsort }}",
    "{{ ('a' * N)|batch(2)|list }}", "{{ 'a' ~ N ~ 'b' }}", "(" * 3000, "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
    "{{ " + "-" * 3000 + "1 }}", "{% if 1 %}" * 500, "{{ N }}" * 1000, "{{ [messages, messages]|tojson(indent=N) }}",
    "{{ messages|string|urlize }}", "{{ ('a' * N).encode() }}", "{{ 1 / 0 }}",
)  # fmt: skip
"""Pieces of chat templates; N is a number."""
NUMBERS = ("2", "4000", "100000", "8388600", "10 ** 9", "9" * 400)
CARDS = (
    "---\n", "configs:\n", "- config_name: default\n", "  data_files: data/*.jsonl\n", "  data_files:\n",
    "  - split: train\n", "    path: data/train.jsonl\n", "    path: '**/**/**/**/**/*a*b*c*d*'\n",
    "    path: " + "[" * DEEP + "\n", "&a [*a, *a]\n", "  - {split: train, path: " + "*" * 5000 + "}\n",
    "  default: true\n", "\ud800\n", "a: " * 3000 + "\n", "\0\n", "!!python/x y\n",
    "- config_name: " + "9" * 400 + "\n", "  data_files: " + "9" * 400 + "\n", "  data_files: 2020-01-01\n",
    "- \n" * 20000, "configs: {}\n", "configs: [[]]\n", "configs: x\n", "  data_files: {train: a}\n", "<<: *a\n",
    "? [a]\n: b\n", "é\r\n", "\t- x\n",
)  # fmt: skip
"""Pieces of the cards of data sets."""
ANSWER = {"choices": [{"text": "#### 4", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
_WHOLE = json.dumps(ANSWER)
_NO_ANSWERS = (b"", b"null", b"[]", b"1", b'"x"', b"{", b"\xff\xfe", b"[" * DEEP, b'{"a":' * DEEP, b"9" * 5000)
_TEXTS = (
    r'"\ud800"',
    "null",
    "3",
    "[]",
    r'"\u0000"',
    f'"{"x" * 2_000_000}"',
    f'"{"(" * 50_000}"',
    rf'"\\boxed{"{" * 9000}"',
)
_COUNTS = ("9" * 4000, "-5", "true", "1.5", "NaN", "1e999", "null", "[]", '"3"')
_REASONS = (r'"\ud800"', "[]", "3", "9" * 400)
_STATUSES = (
    *((400, b'{"error": "context"}'), (400, b"\xff"), (500, b"["), (204, b""), (301, b"")),
    *((403, b"\xff"), (404, b"model"), (429, b"")),
)
BODIES: tuple[tuple[int, bytes], ...] = (
    (200, _WHOLE.encode()),
    *((200, body) for body in _NO_ANSWERS),
    *((200, _WHOLE.encode()[:stop]) for stop in (10, 40)),
    *((200, _WHOLE.replace('"#### 4"', text).encode()) for text in _TEXTS),
    *((200, _WHOLE.replace(": 3}", f": {count}}}").encode()) for count in _COUNTS),
    *((200, _WHOLE.replace('"stop"', reason).encode()) for reason in _REASONS),
    *((200, json.dumps({**ANSWER, key: [[]]}).encode()) for key in ANSWER),
    *_STATUSES,
)
"""Status and body of answers of a server."""


@dataclass(frozen=True)
class Case:
    """Something hostile.

    Args:
        kind: settings, option, template, card, records or answers.
        what: the file of settings, the stage, or the source.
        base: of settings: number of the text that is changed.
        parts: of settings: (dotted key, value); of an option (name, value); else texts, or numbers of RECORDS or BODIES
    """

    kind: str
    what: str
    base: int
    parts: tuple[Any, ...]

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """A random one."""
        kind = rng.choices(("settings", "option", "template", "card", "records", "answers"), (8, 3, 4, 2, 2, 2))[0]
        few = range(rng.choice((1, 1, 2, 4)))
        if kind == "settings":
            what = rng.choice(list(BASES))
            base = rng.randrange(len(BASES[what]))
            keys = list(_keys(BASES[what][base]))
            return cls(kind, what, base, tuple((rng.choice(keys), rng.choice(VALUES)) for _ in few))
        if kind == "option":
            what = rng.choice(list(OPTIONS))
            return cls(kind, what, 0, tuple({rng.choice(OPTIONS[what]): rng.choice(TEXTS) for _ in few}.items()))
        if kind == "template":
            return cls(kind, "", 0, tuple(rng.choice(TEMPLATES).replace("N", rng.choice(NUMBERS)) for _ in few))
        if kind == "card":
            return cls(kind, "", 0, tuple(rng.choice(CARDS) for _ in range(rng.randint(1, 9))))
        if kind == "records":
            return cls(kind, rng.choice(("quiz", "chats")), 0, tuple(rng.randrange(len(RECORDS)) for _ in few))
        return cls(kind, "", 0, tuple(rng.randrange(len(BODIES)) for _ in few))

    def try_on(self, world: World) -> None:
        """Give it to a stage. Raises Wrong."""
        if self.kind == "settings":
            world.require_settings(self.what, self.text(world.play.scene.given))
        elif self.kind == "option":
            world.require(self.what, dict(self.parts))
        elif self.kind == "template":
            template = "".join(self.parts)
            world.require_settings("chats", f"{CHATS}template: {json.dumps(template)}\n")
        elif self.kind == "card":
            world.require_settings("card", "".join(self.parts))
        elif self.kind == "records":
            world.require_records(self.what, [RECORDS[one] for one in self.parts])
        else:
            world.require_answers([BODIES[one] for one in self.parts])

    def text(self, given: Path) -> str:
        """The file of settings: YAML in which each part is put in the place of what its key has."""
        value: Any = json.loads(json.dumps(BASES[self.what][self.base], default=str))
        marks = {}
        for number, (key, text) in enumerate(self.parts):
            marks[json.dumps(f"mark {number}")] = text
            value = _with(value, key, f"mark {number}")
        written = json.dumps(value)
        for mark, text in marks.items():
            written = written.replace(mark, text)
        return written.replace("<given>", str(given))

    def without(self, kept: Sequence[Any]) -> Self:
        """The same with these of its parts alone."""
        return replace(self, parts=tuple(kept))

    def __str__(self) -> str:
        if self.kind in ("settings", "option"):
            parts = [f"{key or 'all of it'}: {_short(text)}" for key, text in self.parts]
        else:
            texts: dict[str, Any] = {"answers": BODIES, "records": RECORDS}
            parts = [_short(texts[self.kind][one] if self.kind in texts else one) for one in self.parts]
        base = f", text {self.base}" if self.kind == "settings" else ""
        head = f"{self.kind} of {self.what}{base}" if self.what else self.kind
        return "\n".join([head, *(f"    {part}" for part in parts)])


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) < 160 else f"{text[:100]}… ({len(text):,} characters)"


def _keys(value: Any, above: str = "") -> list[str]:
    """The dotted keys of a value, with numbers for items; that of the whole value is empty."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(one for key, item in below for one in _keys(item, f"{above}.{key}" if above else str(key)))]


def _with(value: Any, key: str, new: Any) -> Any:
    if not key:
        return new
    first, _, rest = key.partition(".")
    if isinstance(value, list) and first.isdigit():
        return [_with(item, rest, new) if number == int(first) else item for number, item in enumerate(value)]
    if isinstance(value, dict) and first in value:
        return {name: _with(item, rest, new) if name == first else item for name, item in value.items()}
    return value


class Answers:
    """A server of OpenAI's protocol that says these answers in turn, again and again."""

    def __init__(self, answers: Sequence[tuple[int, bytes]]) -> None:
        self.answers = list(answers)
        self._asked, self._lock = 0, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def say(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self.say(200, b'{"data": [{"id": "tiny"}]}')

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                with outer._lock:
                    outer._asked += 1
                    answer = outer.answers[outer._asked % len(outer.answers)]
                self.say(*answer)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class World:
    """A finished line that stages read. Args: base: an empty folder."""

    def __init__(self, base: Path) -> None:
        self.play = Play(base, rows=4)
        process = self.play.start({"workers": "1"})
        process.require_code(process.wait(), may_refuse=False)
        outputs = {one.stage: one.output for one in process.ended()}
        self._outputs = {name: output for name, output in outputs.items() if output}
        self._jobs = 0
        rows = [{"question": f"What is {one} plus 2?", "answer": f"So.\n#### {one + 2}"} for one in range(3)]
        self._questions = tools.write_lines(base / "gsm8k.jsonl", rows)

    def require_settings(self, what: str, text: str) -> None:
        """Have a file read by the stages that read it."""
        path = self.play.scene.given / f"hostile {what}.yaml"
        path.write_bytes(text.encode(errors="surrogatepass"))
        stages, option = {
            "curate": (("curate",), "curate_config"),
            "select": (("fetch", "select"), "select_config"),
            "mix": (("mix",), "mix_config"),
            "rules": (("train_tokenizer", "sample"), "prefix_config_path"),
            "quiz": (("clean",), "sources"),
            "chats": (("clean",), "sources"),
        }.get(what, ((what,), "path"))
        for stage in stages:
            self.require(stage, {option: str(path)})

    def require_records(self, source: str, lines: Sequence[bytes]) -> None:
        """Clean records of a source, whatever share of them is malformed."""
        given = self.play.scene.given
        (given / "hostile").mkdir(exist_ok=True)
        (given / "hostile" / "a.jsonl").write_bytes(b"\n".join(lines))
        card = {"quiz": QUIZ, "chats": CHATS}[source].replace(f"{source}/", "hostile/")
        path = tools.write_text(given / "records.yaml", card)
        self.require("clean", {"sources": str(path), "max_reject_fraction": "1"})

    def require(self, stage: str, options: dict[str, str]) -> None:
        """Run a stage with these options, in a root of its own."""
        root = self._root()
        given = dict(self.play.scene.stages(root)).get(stage, {})
        if "sources" in options:  # the card is all that there is
            given = {"root": str(root), "raw": str(self.play.scene.given)}
        for name, output in {"mix": "", **self._outputs}.items():
            given = {key: value.replace(f"{{{name}}}", output) for key, value in given.items()}
        self.run([(stage, {**given, **options})])

    def require_answers(self, answers: Sequence[tuple[int, bytes]]) -> None:
        """Evaluate a model of a server that answers so; and again, once it answers well."""
        options = {"root": str(self._root()), "benchmarks": "gsm8k", "data": f"gsm8k={self._questions}", "workers": "1"}
        with Answers(answers) as server:
            options["model"] = server.url
            self.run([("evaluate", options)])
            server.answers = [BODIES[0]]
            self.run([("evaluate", options)], may_refuse=False)

    def _root(self) -> Path:
        """A root that does not exist."""
        root = self.play.base / "hostile"
        shutil.rmtree(root, ignore_errors=True)
        return root

    def run(self, stages: list[tuple[str, dict[str, str]]], *, may_refuse: bool = True) -> None:
        """Run stages. Raises Wrong if they end in another way than they may, or take too much."""
        self._jobs += 1
        process = Process.start(
            self.play.base / f"hostile-{self._jobs}",
            stages,
            memory=4 << 30,
            environment={"PAIRMILL_STORAGE_PATIENCE": "0.1", "PAIRMILL_SHARE_PATIENCE": "0"},
        )
        process.require_code(process.wait(SECONDS), may_refuse=may_refuse)
        memory = process.memory()
        if memory > MEMORY:
            raise Wrong("memory is bounded", f"{memory >> 20} MiB, expected at most {MEMORY >> 20}")
