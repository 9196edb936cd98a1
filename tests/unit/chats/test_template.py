"""Chat templates: those of tokenizers are rendered as there, and hostile ones end soon, with an error."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pairmill.chats import sandbox
from pairmill.chats.account import TemplateFailed
from pairmill.chats.template import MAX_HISTORY, MAX_TEMPLATE, ChatTemplate
from pairmill.engine import runner
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.formats.rows import Row
from pairmill.sources.language import mapped
from pairmill.sources.parsed import Drop, Malformed, parts_of
from pairmill.sources.source import Context, Source, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from tests.support.helpers import python

SAID = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi "},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "And?"},
]
TOKENS = (("bos_token", "<s>"), ("eos_token", "</s>"))

CHATML = """{% for message in messages %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
HEADERS = """{%- if not date is defined %}
    {%- if strftime_now is defined %}{%- set date = strftime_now("%d") %}
    {%- else %}{%- set date = "1 May" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{{- bos_token }}{{- "<|h|>system<|e|>\\n" ~ date ~ " " ~ system ~ "<|t|>" }}
{%- for message in messages %}
    {{- '<|h|>' + message['role'] + '<|e|>\\n' + message['content'] | trim + '<|t|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|h|>assistant<|e|>\\n' }}{%- endif %}"""
ALTERNATING = """{%- if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{%- else %}{% set loop_messages = messages %}{% endif %}
{%- for message in loop_messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant!') }}{% endif %}
{%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}
{%- endfor %}"""
OTHERS = """{%- macro one(m) %}{{ m.role|upper ~ ':' ~ m.content }}{% endmacro -%}
{%- set ns = namespace(n=0) -%}
{%- for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 %}{% if ns.n > 2 %}{% break %}{% endif -%}
{% generation %}{{ one(m) }}{% endgeneration %}|{% endfor -%}
{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(',') }}|{{ messages|length }}|
{{- messages[-1]|tojson }}|{{ tools is none }}|{{ {'a': [1, 2]}.items()|list }}|{{ 'a,b'.split(',')[1:] }}|
{{- {'a': 1}|items|list }}|{{ "x" if "i" in messages[1].content else "y" }}|{{ 2 * 3 + 2 ** 3 }}|
{{- messages[0].missing }}"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            CHATML,
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
            "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            HEADERS,
            "<s><|h|>system<|e|>\n1 May Be kind.<|t|><|h|>user<|e|>\nHi<|t|><|h|>assistant<|e|>\nHello<|t|>"
            "<|h|>user<|e|>\nAnd?<|t|><|h|>assistant<|e|>\n",
        ),
        (ALTERNATING, "<s>[INST] Hi [/INST] Hello </s><s>[INST] And? [/INST]"),
        (
            OTHERS,
            'USER:Hi |ASSISTANT:Hello|Hi ,And?|4|{"role": "user", "content": "And?"}|True|'
            "[('a', [1, 2])]|['b']|[('a', 1)]|x|14|",
        ),
    ],
    ids=["chatml", "headers", "alternating", "others"],
)
def test_templates_of_tokenizers_are_rendered(text: str, expected: str) -> None:
    assert ChatTemplate(text, "here", TOKENS).render(SAID) == expected


def test_the_renderings_are_those_of_jinja2_alone() -> None:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    for text in (CHATML, HEADERS, ALTERNATING):
        known = {"messages": SAID, "add_generation_prompt": True, "tools": None, "documents": None, **dict(TOKENS)}
        assert ChatTemplate(text, "here", TOKENS).render(SAID) == environment.from_string(text).render(**known)


# Of two limits the one that is reached first.
MUCH = "too long a text|never ends"
HUGE = "{% set ns = namespace(x=X, y=X) %}{% for i in range(100) %}DO{% endfor %}"
# Template, and what is said of it.
HOSTILE = {
    "loops in loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "never ends"),
    "loops of nothing": (
        "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
        "never ends",
    ),
    "a loop within itself": ("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "calls itself without end"),
    "macros": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "never ends",
    ),
    "blocks": ("{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}", "calls itself without end"),
    "a long text": ("{{ 'x' * 1000000000 }}", "too long a text"),
    "a long list": ("{{ [0] * 1000000000 }}", MUCH),
    "a power": ("{{ 9 ** 9 ** 9 }}", "too large a number"),
    "squares": (HUGE.replace("X", "999").replace("DO", "{% set ns.x = ns.x * ns.x %}"), "too large a number"),
    "twice by ~": (HUGE.replace("X", "'a'").replace("DO", "{% set ns.x = ns.x ~ ns.x %}"), MUCH),
    "twice by +": (HUGE.replace("X", "'a'").replace("DO", "{% set ns.x = ns.x + ns.x %}"), MUCH),
    "twice by a block": (
        HUGE.replace("X", "'a'").replace("DO", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        MUCH,
    ),
    "twice by lists": (HUGE.replace("X", "[1]").replace("DO", "{% set ns.x = ns.x + ns.x %}"), "never ends"),
    "lists of lists": (HUGE.replace("X", "[1]").replace("DO", "{% set ns.x = [ns.x, ns.x] %}"), "never ends"),
    "objects of objects": (
        HUGE.replace("X", "[1]").replace("DO", "{% set ns.x = dict(a=ns.x, b=ns.x) %}"),
        "never ends",
    ),
    "replace": ("{{ ('a' * 100000).replace('a', 'b' * 100000) }}", "too long a text"),
    "replace as a filter": ("{{ ('a' * 100000)|replace('a', 'b' * 100000) }}", "too long a text"),
    "join": ("{{ ('b' * 1000000).join(range(10000)|map('string')) }}", MUCH),
    "join as a filter": ("{{ range(10000)|join('b' * 1000000) }}", "too long a text"),
    "indent": ("{{ 'a\nb'|indent(1000000000) }}", "too long a text"),
    "indent of JSON": ("{{ [1]|tojson(indent=1000000000) }}", "indents too far"),
    "percent": ("{{ '%1000000000d' % 1 }}", "% on a text is not available"),
    "format": ("{{ '{:1000000000}'.format(1) }}", "'format' of 'str' object is unsafe"),
    "format as a filter": ("{{ '%1000000000d'|format(1) }}", "No filter named 'format'"),
    "center": ("{{ 'a'.center(1000000000) }}", "'center' of 'str' object is unsafe"),
    "slices": (
        "{% set s = 'x' * 8000000 %}{% for i in range(99999) %}{% set t = s[1:] %}{% endfor %}",
        "never ends",
    ),
    "comparisons": (
        "{% set s = 'x' * 8000000 %}{% for i in range(99999) %}{% if 'xy' in s %}{% endif %}{% endfor %}",
        "never ends",
    ),
    "searches": (
        "{% set s = 'x' * 8000000 %}{% for i in range(99999) %}{% set a = s.find('xy') %}{% endfor %}",
        "never",
    ),
    "sorts": ("{% for i in range(99999) %}{% set x = range(9999)|sort %}{% endfor %}", "never ends"),
    "output": ("{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s }}{% endfor %}", MUCH),
    "include": ("{% include '/etc/passwd' %}", r"reads no other file \(line 1: include\)"),
    "import": ("{% import '/etc/passwd' as x %}", "reads no other file"),
    "from": ("{% from '/etc/passwd' import x %}", "reads no other file"),
    "extends": ("{% extends '/etc/passwd' %}", "reads no other file"),
    "classes": ("{{ ''.__class__.__mro__ }}", "'__class__' of 'str' object is unsafe"),
    "globals": ("{{ namespace.__init__.__globals__.os.popen('id').read() }}", "is unsafe"),
    "changes": ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
    "the present time": ("{{ strftime_now('%Y') }}", "same on any day"),
    "deep": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    "deep loops": ("{% for a in [1] %}" * 50 + "{% endfor %}" * 50, "nested too deeply"),
    "no template": ("{% for %}", r"not a valid chat template: .*\(line 1\)"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_template_is_refused_when_it_is_read(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tenth of the work shows the same, in a tenth of the time.
    monkeypatch.setattr(sandbox, "MAX_WORK", sandbox.MAX_WORK // 10)
    text, said = HOSTILE[what]
    (tmp_path / "chat.jinja").write_text(text)
    started = time.process_time()
    with pytest.raises(UsageError, match=said) as caught:
        load(tmp_path, template="chat.jinja")
    assert time.process_time() - started < 20
    assert "line 5, template" in caught.value.where
    assert "write 'template: plain'" in str(caught.value)


LARGE = "{% set t = 'あ' * 8388600 %}"
HUNGRY = [
    "{{ ('あ' * 8388600)|list }}",
    LARGE + "{{ t|map('upper')|list|length }}",
    LARGE + "{{ t|select|list|length }}",
    LARGE + "{{ t|reject('none')|first }}",
    LARGE + "{{ t|sort|first }}",
    LARGE + "{{ t|unique|list|length }}",
    LARGE + "{{ ','.join(t)|length }}",
    LARGE + "{{ t|join(',')|length }}",
    "{% set t = 'あ-' * 4194300 %}{{ t|title|length }}",
    "{% set t = 'あ-' * 4194300 %}{{ t.split('-')|length }}",
    "{% set t = 'あ ' * 4194300 %}{{ t.rsplit()|length }}",
    "{% set t = 'あ\n' * 4194300 %}{{ t.splitlines()|length }}",
    "{% set t = 'あ-' * 4194300 %}{{ t.split(sep='-')|length }}",
    LARGE + "{{ cycler(*t) }}",
    LARGE + "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(*t) }}",
    "{{ ([0] * 8388600)|length }}",
    LARGE + "{{ [t, t] }}",
    "{% set t = '\\U000e0001' * 8388600 %}{{ [t, t, t] }}",
    "{% set t = '\\U000e0001' * 8388600 %}{{ t|tojson(ensure_ascii=true) }}",
    "{% set ns = namespace(x=range(1000)|list) %}{% for i in range(90) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ [ns.x, ns.x, ns.x, ns.x, ns.x, ns.x, ns.x, ns.x]|tojson(indent=16) }}",
]


@pytest.mark.parametrize("text", HUNGRY)
def test_a_template_pays_before_it_makes(text: str) -> None:
    template = ChatTemplate(text, "here")
    tracemalloc.start()
    with pytest.raises(UsageError, match=f"{MUCH}|too long a text"):
        template.render(SAID)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 << 20


def test_what_is_paid_for_is_what_jinja2_makes() -> None:
    text = """{{ 'abc'|list }}|{{ 'abc'|map('upper')|join('-') }}|{{ 'cab'|sort }}|{{ 'aab'|unique|list }}|
{{- 'a b'|title }}|
{{- 'a,b,c'.split(',', 1) }}|{{ ' a b '.split() }}|{{ 'a\nb'.splitlines() }}|{{ cycler(*'ab').current }}|
{{- [{'a': 'é'}]|tojson(indent=2) }}|{{ 'ab'|reverse }}|{{ 'ab'|select('equalto', 'b')|first }}|{{ [0] * 2 }}"""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, indent: json.dumps(value, indent=indent, ensure_ascii=False)
    assert ChatTemplate(text, "here").render(SAID) == environment.from_string(text).render()


@pytest.mark.parametrize(
    "text",
    ["{{ joiner() }}", "{{ 'a'.upper }}", "{{ [range] }}", "{{ namespace(a=1) }}", "{{ [namespace(a=1)]|string }}"],
)
def test_what_python_prints_otherwise_each_time_is_not_printed(text: str) -> None:
    with pytest.raises(TemplateFailed, match="cannot be printed"):
        ChatTemplate(text, "here").render(SAID)


# --- in a description -----------------------------------------------------------------------------------------------


def load(folder: Path, raw: str = "", **keys: str) -> Source:
    described = {"name": "mine", "files": "a.jsonl", "condition": "direct", "turns": "messages", **keys}
    (folder / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in described.items()))
    return mapped.load(str(folder / "mine.yaml"), raw)


def rows(source: Source, messages: list[Any] = SAID[1:3]) -> list[Any]:
    parsed = parts_of(parse_record(source, {"messages": messages}, Context("pairmill")))
    return [part for part in parsed if isinstance(part, Row | Drop)]


def test_a_template_comes_with_the_tokens_of_its_tokenizer(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    row = Row("direct", "<s>Hi</s>", "Hello</s>")
    plain = {"chat_template": template, "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    config = tmp_path / "tokenizer_config.json"
    for content in (
        plain,
        {**plain, "chat_template": [{"name": "tools", "template": "x"}, {"name": "default", "template": template}]},
    ):
        config.write_text(json.dumps(content))
        assert rows(load(tmp_path, template="tokenizer_config.json")) == [row]
    del plain["chat_template"]
    config.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match=r"template: no such file.*chat_template\.jinja"):
        load(tmp_path, template="tokenizer_config.json")
    (tmp_path / "chat_template.jinja").write_text(template)
    assert rows(load(tmp_path, template="tokenizer_config.json")) == [row]
    with pytest.raises(UsageError, match=r"the template needs bos_token.*'template: tokenizer_config.json'"):
        load(tmp_path, template="chat_template.jinja")
    own = '{bos_token: "<s>", eos_token: "</s>"}'
    assert rows(load(tmp_path, template="chat_template.jinja", template_variables=own)) == [row]
    (tmp_path / "chat_template.jinja").write_text("{{ sep_token }}" + template)
    assert rows(load(tmp_path, template="tokenizer_config.json")) == [row]  # the tokenizer has none


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "{", "the file is not JSON"),
        ("a.json", '{"chat_template": 5}', "the file has no chat template"),
        ("a.json", '{"chat_template": [{"name": "x"}]}', "no such file|has no chat template"),
        (
            "a.jinja",
            "{{ 'x' }}" * 20_000,
            f"the template is too long; got 180000 characters; expected at most {MAX_TEMPLATE}",
        ),
        ("a.jinja", b"\xff", "the file is not UTF-8"),
    ],
)
def test_a_file_that_holds_no_template_is_refused(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=said):
        load(tmp_path, template=name)


def test_a_template_is_read_below_the_description_or_raw_alone(tmp_path: Path) -> None:
    for name in ("here", "raw", "secrets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jinja").write_text("{{ messages }}")
    (tmp_path / "here" / "link.jinja").symlink_to(tmp_path / "secrets" / "a.jinja")
    here, raw = tmp_path / "here", str(tmp_path / "raw")
    for path in ("a.jinja", "./a.jinja", f"{here}/a.jinja", "../raw/a.jinja", f"file://{raw}/a.jinja"):
        assert load(here, raw, template=path).name == "mine"
    for path in ("../secrets/a.jinja", f"{tmp_path}/secrets/a.jinja", "link.jinja"):
        with pytest.raises(UsageError, match="outside the folders"):
            load(here, raw, template=path)
    with pytest.raises(UsageError, match="outside the folders"):
        load(here, "", template="../raw/a.jinja")


def test_what_a_template_refuses_ends_the_chat(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text(ALTERNATING)
    first = rows(source := load(tmp_path, template="a.jinja"))[0]
    finding = source.explain({"messages": SAID[1:3]}, first)
    assert finding == ("the template said: Undefined: 'bos_token' is undefined", "template: tokenizer_config.json")
    config = {"chat_template": ALTERNATING, "bos_token": "", "eos_token": ""}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    source = load(tmp_path, template="tokenizer_config.json")
    greeting = [{"role": "assistant", "content": "Welcome."}, *SAID[1:3]]
    record = {"messages": greeting}
    first, *others = rows(source, greeting)
    assert (first, others) == (Malformed("template_failed"), [Drop("answer_without_question")])
    assert source.explain(record, first).found == "the template said: Roles must alternate user/assistant!"
    tools = [*SAID[1:3], SAID[3], {"role": "tool_call", "content": "x()"}, {"role": "tool", "content": "y"}, SAID[2]]
    made = rows(source, tools)
    assert made == [
        Row("direct", "[INST] Hi [/INST]", " Hello "),
        Drop("calls_not_rendered"),
        Malformed("template_failed"),
    ]
    with pytest.raises(TemplateFailed, match="Undefined: 'x' is undefined"):
        ChatTemplate("{{ x.y }}", "here").render(SAID)


def test_a_template_gets_no_more_than_it_can_work_on(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text(CHATML)
    long = {"role": "user", "content": "x" * MAX_HISTORY}
    source = load(tmp_path, template="a.jinja")
    assert rows(source, [long, SAID[2]])[0].response == "Hello<|im_end|>\n"
    assert rows(source, [long, SAID[2], SAID[3], SAID[2]])[1:] == [Drop("chat_too_long")]


def test_a_template_that_fails_in_a_record_alone_ends_the_run_with_the_line_to_write(tmp_path: Path) -> None:
    trap = f"{{% if messages|length == 1 %}}{HOSTILE['loops in loops'][0]}{{% endif %}}"
    (tmp_path / "a.jinja").write_text(trap)
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": SAID[1:3]}) + "\n")
    load(tmp_path, template="a.jinja")
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    with pytest.raises(StageFailure, match=r"line 5, template: .*too much work.*write 'template: plain'") as caught:
        runner.run(Clean(), config)
    assert caught.value.exit_code == 2
    (tmp_path / "a.jinja").write_text("{{ raise_exception('No ' ~ messages[0].role) if messages|length == 1 }}")
    with pytest.raises(InputError, match=r"template_failed \(found the template said: No user"):
        runner.run(Clean(), config)


def test_jinja2_is_loaded_for_templates_alone(tmp_path: Path) -> None:
    load(tmp_path)
    path = str(tmp_path / "mine.yaml")
    code = (
        f"import sys; from pairmill.sources.language.mapped import load; load({path!r}); print('jinja2' in sys.modules)"
    )
    assert python("-c", code).stdout.strip() == "False"


# --- variables, tools and the whole ----------------------------------------------------------------------------------


def test_a_template_gets_variables_tools_and_the_generation_prompt() -> None:
    text = (
        "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}>"
        "{% if enable_thinking is defined and not enable_thinking %}_{% endif %}{% endif %}"
    )
    tools = [{"type": "function", "function": {"name": "ü"}}]
    assert ChatTemplate(text, "here").render(SAID[1:3]) == "Hi ;Hello;>"
    quiet = ChatTemplate(text, "here", variables={"enable_thinking": False})
    assert quiet.render(SAID[1:3]) == "Hi ;Hello;>_"
    assert quiet.render(SAID[1:3], tools, False) == '[{"type": "function", "function": {"name": "ü"}}]Hi ;Hello;'
    assert ChatTemplate.from_data(json.loads(json.dumps(quiet.to_data())), "there") == quiet
    assert len({quiet.digest, ChatTemplate(text, "x").digest, ChatTemplate(text + " ", "x").digest}) == 3
    assert ChatTemplate(text, "x").digest == ChatTemplate(text, "y").digest


def test_a_variable_that_a_template_prints_and_does_not_get_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text("{{ today }}{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(UsageError, match=r"template: .*needs the variable today.*template_variables: {today: …}"):
        load(tmp_path, template="a.jinja")
    assert rows(load(tmp_path, template="a.jinja", template_variables="{today: 1 May}"))[0].instruction == "1 MayHi"
    with pytest.raises(UsageError, match=r"line 6, template_variables: tools: .*set by each rendering|is set by each"):
        load(tmp_path, template="a.jinja", template_variables="{tools: []}")
    with pytest.raises(UsageError, match="template_variables: needs a template:"):
        load(tmp_path, template_variables="{today: 1}")
    with pytest.raises(UsageError, match="boundary: unknown value; got 'x'; expected prefix_of_whole or apart"):
        load(tmp_path, template="a.jinja", template_variables="{today: 1 May}", boundary="x")


def test_a_whole_that_does_not_begin_with_its_prompt_makes_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text(
        "{% for m in messages %}{{ '(empty)' if m.role == 'assistant' and loop.last and messages|length > 2 }}"
        "{{ m.content }}{% endfor %}{{ ':' if add_generation_prompt and messages|length > 1 }}"
    )
    first, second = rows(load(tmp_path, template="a.jinja"), [*SAID[1:3], SAID[3], SAID[2]])
    assert (first, second) == (Row("direct", "Hi", "Hello"), Drop("prefix_mismatch_template"))
    assert first.chat == '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello"}]}'


def test_a_rendered_row_brings_its_chat_and_the_folder_its_template(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").write_text(CHATML)
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [*SAID, SAID[2]], "lang": "en"}) + "\n")
    load(tmp_path, template="a.jinja", attributes="{lang: lang}", boundary="apart")
    config = CleanConfig(root=str(tmp_path / "root"), sources=[str(tmp_path / "mine.yaml")], workers=1)
    done = runner.run(Clean(), config)
    table = pq.read_table(Path(done.uri) / "attributes" / "source" / "mine.jsonl.parquet").to_pylist()
    chats = [json.loads(row["chat"]) for row in table]
    stripped = [{**message, "content": message["content"].strip()} for message in SAID]
    assert [chat["messages"] for chat in chats] == [stripped[:3], [*stripped, SAID[2]]]
    assert [row["lang"] for row in table] == ["en", "en"]
    (digest,) = done.manifest.data["chat_templates"]["templates"]
    assert done.manifest.data["chat_templates"] == {
        "templates": {digest: {"text": CHATML, "tokens": {}, "variables": {}, "boundary": "apart"}},
        "tasks": {"mine.jsonl": digest},
    }
