"""Two components of pairmill in a pipeline with a stranger's: ``python examples/components/joined.py`` compiles it.

``keep_questions`` is an ordinary component of kfp, which knows nothing of pairmill: it writes JSON Lines with
``condition``, ``instruction`` and ``response``, and returns where. ``curate`` and ``train_tokenizer`` are loaded from
their files in ``components/``. The pipeline is written to ``joined.yaml``, beside this file.
"""

from pathlib import Path

from kfp import compiler, components, dsl

COMPONENTS = Path(__file__).parents[2] / "components"

curate = components.load_component_from_file(str(COMPONENTS / "curate" / "component.yaml"))
train_tokenizer = components.load_component_from_file(str(COMPONENTS / "train_tokenizer" / "component.yaml"))


@dsl.component(base_image="python:3.11")
def keep_questions(lines: list, rows: dsl.Output[dsl.Dataset]) -> str:
    """Write each line that is a question with its answer as a row, and return the folder of the rows.

    Args:
        lines: question and answer, with a tab between them
        rows: the rows, as JSON Lines
    """
    import json
    import pathlib

    folder = pathlib.Path(rows.path)
    folder.mkdir(parents=True)
    with (folder / "questions.jsonl").open("w", encoding="utf-8") as file:
        for line in lines:
            question, _, answer = line.partition("\t")
            if question.endswith("?"):
                row = {"condition": "direct", "instruction": question, "response": answer}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return rows.uri


@dsl.pipeline(name="joined")
def joined(lines: list, root: str, vocab_size: int = 32768) -> None:
    """Curate a stranger's rows, and train a tokenizer on what is kept.

    Args:
        lines: question and answer, with a tab between them
        root: folder or URI of the results
        vocab_size: entries of the tokenizer
    """
    questions = keep_questions(lines=lines)
    kept = curate(
        root=root,
        rows=questions.outputs["Output"],
        rows_manifest=questions.outputs["rows"],
    )
    train_tokenizer(
        root=root,
        rows=kept.outputs["output"],
        rows_manifest=kept.outputs["manifest"],
        vocab_size=vocab_size,
    )


if __name__ == "__main__":
    compiler.Compiler().compile(joined, str(Path(__file__).with_suffix(".yaml")))
