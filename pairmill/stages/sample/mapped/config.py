"""Options of ``map``."""

from dataclasses import dataclass

from pairmill.engine.options import option, tasks_option


@dataclass(kw_only=True)
class MapConfig:
    """Write which tokens of a sampled folder are of which task and source, and how many rows of each there are."""

    path: str = option(help="sampled folder, or folder of a node; of pairmill's sampler, or of data_io's")
    tokenized_path: str = option(
        "", help="the tokenized folder that it was sampled from; a folder of pairmill's sampler says this itself"
    )
    tasks: str = tasks_option()
    prefix_config_path: str = option("", help="the rules by which it was sampled, for the column rule; empty = none")
    probes: int = option(3, help="places of each task at which 16 tokens of both folders are compared", at_least=0)
    out: str = option("", help="file or URI of the map; empty = tasks.parquet in the sampled folder")
