"""Record verdicts of the published checkers of IFEval and BFCL on random cases: tests/unit/evaluation/verdicts.json.

In an environment of its own, from the top of the repository (they bring what nothing else here needs)::

    pip install --no-deps lm_eval==0.4.13 bfcl-eval==2026.3.23 nltk==3.10.4 langdetect==1.0.9
    pip install immutabledict packaging six regex numpy
    PYTHONPATH=. python tests/harness/record_verdicts.py
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

from tests.support.data import verdict_cases as cases

TARGET = Path(__file__).parents[1] / "unit/evaluation/verdicts.json"
INSTRUCTIONS, CALLS = 800, 5000
"""Cases of each instruction, and of each category."""


def bare(name: str) -> None:
    """Import a package without what its __init__ imports."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    made = types.ModuleType(name)
    made.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = made


def digits(verdicts: list[bool]) -> str:
    """Verdicts as hexadecimal digits."""
    return f"{int(''.join('01'[one] for one in verdicts), 2):0{(len(verdicts) + 3) // 4}x}"


def of_ifeval() -> dict[str, str]:
    """Strict and loose verdicts by turns, of each instruction."""
    nltk = importlib.import_module("nltk")
    nltk.data.find = lambda *_: True  # the model of sentences, which no case here needs
    for name in ("lm_eval", "lm_eval.tasks"):
        bare(name)
    utils = importlib.import_module("lm_eval.tasks.ifeval.utils")
    words = nltk.tokenize.NLTKWordTokenizer()
    importlib.import_module("lm_eval.tasks.ifeval.instructions_util").nltk.word_tokenize = words.tokenize
    importlib.import_module("langdetect").DetectorFactory.seed = 0
    made = {}
    for name in cases.INSTRUCTIONS:
        verdicts = []
        for given, text in cases.instructions(name, INSTRUCTIONS):
            asked = utils.InputExample(key=0, instruction_id_list=[name], prompt="", kwargs=[given])
            verdicts.append(utils.test_instruction_following_strict(asked, text).follow_all_instructions)
            verdicts.append(utils.test_instruction_following_loose(asked, text).follow_all_instructions)
        made[name] = digits(verdicts)
    return made


def of_bfcl() -> dict[str, str]:
    """Verdicts of each category; what the checker cannot judge is not right."""

    class Configurations(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return types.SimpleNamespace(underscore_to_dot=True)

    models: Any = types.ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = Configurations()  # in place of a hundred clients
    sys.modules[models.__name__] = models
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    languages = importlib.import_module("bfcl_eval.constants.enums").Language
    others = dict(zip(cases.LITERALS, (languages.JAVA, languages.JAVASCRIPT), strict=True))
    made = {}
    for category in (*cases.CATEGORIES, *cases.LITERALS):
        verdicts, language = [], others.get(category, languages.PYTHON)
        drawn = (cases.literals if category in others else cases.calls)(category, CALLS)
        for functions, calls, answers in drawn:
            try:
                judged = checker.ast_checker(functions, calls, answers, language, category, "any")["valid"]
            except (TypeError, AttributeError, KeyError, ValueError, NotImplementedError):
                judged = False
            verdicts.append(bool(judged))
        made[category] = digits(verdicts)
    return made


if __name__ == "__main__":
    TARGET.write_text(json.dumps({"ifeval": of_ifeval(), "bfcl": of_bfcl()}, indent=1) + "\n")
