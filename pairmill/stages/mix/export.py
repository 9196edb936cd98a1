"""``export``: a plan as rules of prefix_config.yaml."""

from dataclasses import dataclass

from pairmill import storage
from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.mixture.export import prefix_config
from pairmill.mixture.plan import long_rows_key
from pairmill.mixture.reading import load_mixture
from pairmill.rules.book import Rules


@dataclass(kw_only=True)
class ExportConfig:
    """Write a mixture as sampling rules, for samplers that know only those."""

    mixture: str = option(help="folder, file or URI of a mixture")
    prefix_config: str = option("", help="file or URI to write; empty = print the rules")
    phase: str = option("", help="the phase to export, if the mixture has several")
    prefix_config_path: str = option(
        "", help="the rules that the mixture was made with, of which long_context is kept; empty = none"
    )


def export(config: ExportConfig) -> str:
    """Return the rules, or nothing if they were written to a file.

    Raises:
        UsageError: the mixture has buckets, or several phases of which none is named, or was made with other rules.
        InputError: not a mixture.
    """
    mixture = load_mixture(config.mixture)
    long_context: dict[str, str] = {}
    if config.prefix_config_path:
        rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
        long_context = {task: rules.match(task)[0].long_context for task, _ in mixture.tasks}
        if long_rows_key(long_context) != mixture.inputs.long_rows:
            raise UsageError(
                "the mixture was made with other rules for long rows",
                where=f"prefix_config_path={config.prefix_config_path}",
                hint="give the rules that mix was given",
            )
    text = prefix_config(mixture, config.phase, long_context)
    if not config.prefix_config:
        return text
    uri = storage.normalise(config.prefix_config, "prefix_config")
    storage.store_for(uri).write(uri, text.encode())
    return ""
