"""Random texts with instructions of IFEval, and random calls with BFCL's answers: the same for every program."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

WORDS = """apple River don't YES no IT'S P.S. p.p.s. note GREAT work, moon U.S. e.g. 3,000 well-known A B c HELLO WORLD
CAN'T my answer Section SECTION paragraph the and if (BRACKET) [name] [address] *bold* **strong** <<Title>> << >>
{"a":1} "quoted" hello! What? Dr. Who. *** ****** - item"""
PIECES = [
    *WORDS.split(),
    "My answer is yes.",
    "```json",
    "```",
    "\n",
    "\n\n",
    "\n* item",
    "\n- item",
    "Section 1",
    "Section 2",
]
PIECES += ["P.S. bye", "P.P.S x", "Is there anything else I can help with?", "repeat me please", '"']
END = "Is there anything else I can help with?"
FIXED = ('{"a": [1, 2]}', '```json\n{"a": 1}\n```', "", "  ", "\n", "12 34", "?!")

Draw = random.Random


def text(draw: Draw) -> str:
    if draw.random() < 0.1:
        return draw.choice(FIXED)
    made = " ".join(draw.choice(PIECES) for _ in range(draw.randint(1, 30)))
    changes: tuple[Callable[[str], str], ...] = (
        lambda one: f'"{one}"',
        str.upper,
        str.lower,
        lambda one: one.replace(",", ""),
        lambda one: f"repeat me please {one}",
        lambda one: f"{one} {END}",
        lambda one: one.replace(" ", "\n\n", 3),
        lambda one: f"Is this *a*?\n{one}\nBye *.",
        lambda one: f"{one}\n******\nanother one",
    )
    for change in changes:
        if draw.random() < 0.1:
            made = change(made)
    return made


def _first_word(draw: Draw) -> dict[str, Any]:
    count = draw.randint(1, 3)
    word = draw.choice(("repeat", "is", "Apple", "the"))
    return {"num_paragraphs": count, "nth_paragraph": draw.randint(1, count), "first_word": word}


def _counted(name: str, most: int, relation: str = "") -> Callable[[Draw], dict[str, Any]]:
    def made(draw: Draw) -> dict[str, Any]:
        more = {relation: draw.choice(("less than", "at least"))} if relation else {}
        return {name: draw.randint(1, most), **more}

    return made


INSTRUCTIONS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "keywords:existence": lambda draw: {"keywords": draw.sample(["apple", "moon", "work", "hello", "river"], 2)},
    "keywords:frequency": lambda draw: {
        "keyword": draw.choice(("apple", "the", "no ")),
        **_counted("frequency", 3, "relation")(draw),
    },
    "keywords:forbidden_words": lambda draw: {"forbidden_words": draw.sample(["apple", "moon", "work", "section"], 2)},
    "keywords:letter_frequency": lambda draw: {
        "letter": draw.choice("aeZq"),
        **_counted("let_frequency", 12, "let_relation")(draw),
    },
    "language:response_language": lambda draw: {"language": draw.choice(("en", "de", "fr"))},
    "length_constraints:number_paragraphs": _counted("num_paragraphs", 4),
    "length_constraints:number_words": _counted("num_words", 40, "relation"),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": _counted("num_placeholders", 4),
    "detectable_content:postscript": lambda draw: {"postscript_marker": draw.choice(("P.S.", "P.P.S", "Note"))},
    "detectable_format:number_bullet_lists": _counted("num_bullets", 4),
    "detectable_format:constrained_response": lambda draw: {},
    "detectable_format:number_highlighted_sections": _counted("num_highlights", 4),
    "detectable_format:multiple_sections": lambda draw: {
        "section_spliter": draw.choice(("Section", "SECTION")),
        "num_sections": draw.randint(1, 3),
    },
    "detectable_format:json_format": lambda draw: {},
    "detectable_format:title": lambda draw: {},
    "combination:two_responses": lambda draw: {},
    "combination:repeat_prompt": lambda draw: {"prompt_to_repeat": "Repeat me please"},
    "startend:end_checker": lambda draw: {"end_phrase": END},
    "startend:quotation": lambda draw: {},
    "change_case:capital_word_frequency": _counted("capital_frequency", 8, "capital_relation"),
    "change_case:english_capital": lambda draw: {},
    "change_case:english_lowercase": lambda draw: {},
    "punctuation:no_comma": lambda draw: {},
}
"""All but the count of sentences, for which IFEval has a trained model."""


def instructions(name: str, count: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Parameters of an instruction, and a text."""
    draw = random.Random(f"ifeval {name}")
    for _ in range(count):
        yield INSTRUCTIONS[name](draw), text(draw)


LITERALS = ("simple_java", "simple_javascript")
"""Categories in which each argument is a text in another language."""
_FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "simple_java": {
        "integer": ("5", "5L", "-5", "5.0", " 5", "x", "2", "5f"),
        "long": ("5L", "5l", "5", "-5L"),
        "float": ("2.5f", "2.5F", "2.5", "3f", "25e-1f"),
        "double": ("2.5", "25e-1", "2.5f", "3"),
        "boolean": ("true", "false", "True"),
        "char": ("'a'", "a"),
        "String": ("New York", "new york", '"New York"', "'x'", ""),
        "any": ("5", "x", "variable"),
        "Array": ("new {t}[]{{{i}}}", "new {t}[] {{ {i} }}", "new {t}[]{{}}", "{{{i}}}", "variable"),
        "ArrayList": (
            "new ArrayList<{t}>(Arrays.asList({i}))",
            "new ArrayList<>() {{{{ {a} }}}}",
            "new ArrayList<{t}>()",
            "Arrays.asList({i})",
        ),
        "HashMap": (
            "new HashMap<String, {t}>() {{{{ {p} }}}}",
            "new HashMap<>() {{{{{p}}}}}",
            "new HashMap<>()",
            "{{{p}}}",
        ),
    },
    "simple_javascript": {
        "integer": ("5", "-5", "5n", "5.0", "x", "2"),
        "Bigint": ("5n", "-5n", "5", "n"),
        "float": ("2.5", "3", "-2.5", "2.", "25e-1"),
        "Boolean": ("true", "false", "True"),
        "String": ("New York", '"new york"', "'New York'", '"x', "'"),
        "any": ("5", "x", "variable"),
        "array": ("[{i}]", "[ {i} ]", "new Array({i})", "[[{i}], [{i}]]", "new Array([{i}])", "[]", "variable"),
        "dict": ("{{{k}}}", "{{ {k} }}", "{{}}", "{{a: [{i}], b: {{c: 5}}}}", "variable"),
    },
}
_TRUTHS: dict[str, tuple[Any, ...]] = {
    "int": (5, -5, 2),
    "float": (2.5, 3.0),
    "bool": (True, False),
    "text": ("New York", "variable", "x", "5", "a", "'a'"),
    "list": ([5, 2], ["x", "a"], [], [2.5], [True], [[5, 2]], [[5], [5]], "variable", ["'a'"]),
    "dict": ({"a": [5, "x"], "b": [True, 2.5, ""]}, {"a": [[5, 2], "x"]}, {}),
}
_OF_KIND = {
    **dict.fromkeys(("integer", "long", "Bigint"), "int"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("boolean", "Boolean"), "bool"),
    **dict.fromkeys(("char", "String", "any"), "text"),
    **dict.fromkeys(("Array", "ArrayList", "array"), "list"),
    **dict.fromkeys(("HashMap", "dict"), "dict"),
}
_ITEM_TEXTS = ("5", "2", "-5", "2.5", "x", '"x"', "'a'", '"a"', "true", "5L", "2.5f", "")


def literals(category: str, count: int) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Functions, calls and right answers of a category of :data:`LITERALS`."""
    draw, forms = random.Random(f"bfcl {category}"), _FORMS[category]
    for _ in range(count):
        details, right, given = {}, {}, {}
        for name in draw.sample(["city", "unit", "count"], draw.randint(1, 2)):
            kind, inner = draw.choice(sorted(forms)), draw.choice(sorted(forms))
            truths = _TRUTHS[_OF_KIND[kind]]
            details[name] = {"type": kind, **({"items": {"type": inner}} if _OF_KIND[kind] == "list" else {})}
            right[name] = [draw.choice(truths) for _ in range(draw.randint(1, 3))] + [""] * (draw.random() < 0.2)
            items = [draw.choice(_ITEM_TEXTS) for _ in range(draw.randint(1, 2))]
            written = draw.choice(forms[kind]).format(
                t="int",
                i=", ".join(items),
                a=" ".join(f"add({item});" for item in items),
                p=" ".join(f'put("{key}", {item});' for key, item in zip("ab", items, strict=False)),
                k=", ".join(f"{key}: {item}" for key, item in zip("ab", items, strict=False)),
            )
            if draw.random() < 0.95:
                given[name] = written if draw.random() < 0.95 else draw.choice((5, True, ["x"], None))
        function = {"name": "geo.find", "parameters": {"type": "dict", "properties": details, "required": []}}
        yield [function], [{"geo_find": given}], [{"geo.find": right}]


CATEGORIES = ("simple_python", "multiple", "parallel", "live_parallel_multiple")
_KINDS = ("string", "integer", "float", "boolean", "array", "tuple", "dict", "any")
_TEXTS = ("New York", "new york", "New-York, NY", "it's", "5", "x", "true")


def _value(draw: Draw, kind: str, inner: str = "string") -> Any:
    if kind in ("array", "tuple"):
        return [_value(draw, inner) for _ in range(draw.randint(0, 3))]
    if kind == "dict":
        return {key: [_value(draw, "string"), _value(draw, "integer")] for key in draw.sample(["a", "b", "c"], 2)}
    plain = {"integer": draw.randint(0, 5), "float": draw.choice((1.0, 2.5, 3.0)), "boolean": draw.random() < 0.5}
    return plain.get(kind, draw.choice(_TEXTS))


def _function(draw: Draw, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A function, and of each of its parameters the right values."""
    details, right, required = {}, {}, []
    for parameter in draw.sample(["city", "unit", "count", "when", "items"], draw.randint(0, 4)):
        kind, inner = draw.choice(_KINDS), draw.choice(("string", "integer", "float", "dict", "boolean"))
        details[parameter] = {"type": kind, **({"items": {"type": inner}} if kind in ("array", "tuple") else {})}
        right[parameter] = [_value(draw, kind, inner) for _ in range(draw.randint(1, 3))]
        right[parameter] += [draw.choice(("variable", ""))] * (draw.random() < 0.3)
        if draw.random() < 0.2:
            right[parameter].insert(0, "")
        if "" not in right[parameter] and draw.random() < 0.7:
            required.append(parameter)
    made = {"type": "dict", "properties": details, "required": required}
    return {"name": name, "parameters": made}, {name: right}


def _chosen(draw: Draw, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: draw.choice(values) for key, values in value.items()}
    return [_chosen(draw, item) for item in value] if isinstance(value, list) else value


def _wrong(draw: Draw, value: Any) -> Any:
    return draw.choice((str(value), [value], 3, 2.0, True, {"a": value}, "NEW YORK", value, value))


def calls(category: str, count: int) -> Iterator[tuple[list[Any], list[Any], list[Any]]]:
    """Functions, calls and right answers of a category."""
    draw = random.Random(f"bfcl {category}")
    for _ in range(count):
        names = ["math.add", "get_weather"] if category != "simple_python" else ["geo.find"]
        functions, answers = map(list, zip(*(_function(draw, name) for name in names), strict=True))
        answers = [draw.choice(answers) for _ in range(draw.randint(1, 3) if "parallel" in category else 1)]
        made = []
        for answer in answers:
            ((name, right),) = answer.items()
            given = {key: _chosen(draw, draw.choice(values)) for key, values in right.items()}
            given = {key: value for key, value in given.items() if value != "" or draw.random() < 0.3}
            if given and draw.random() < 0.4:
                key = draw.choice(sorted(given))
                given[key] = _wrong(draw, given[key])
            if draw.random() < 0.05:
                given["more"] = 1
            if given and draw.random() < 0.05:
                del given[draw.choice(sorted(given))]
            made.append({name.replace(".", "_") if draw.random() < 0.97 else "other": given})
        if draw.random() < 0.3:
            draw.shuffle(made)
        if draw.random() < 0.05:
            made.pop()
        yield functions, made, answers
