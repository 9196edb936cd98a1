"""Where the data of a run is from, by the manifests below its root."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.formats.results.raw import CleanResult
from pairmill.lineage.steps import by_source, find

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Origin:
    """What clean's manifest says of a source: licence, revision and place of what was published."""

    licence: str
    revision: str
    origin: str


@dataclass
class Provenance:
    """What the manifests say; all is empty where the root has none.

    Attributes:
        rows: of the samples, over all their epochs, by data set.
        tokens: response tokens of them.
        sources: what the data sets were made of, by name.
        stages: fingerprints of the folders that the data went through, by stage, in order.
    """

    rows: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    sources: dict[str, Origin] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)


def trace(root: str, fingerprints: Iterable[str]) -> Provenance:
    """Follow the samples among these fingerprints back to clean, as far as their folders are below the root.

    Args:
        root: URI of the project folder.
        fingerprints: of the inputs of a run; others than samples are left out.
    """
    made = Provenance()
    for fingerprint in dict.fromkeys(fingerprints):
        folder = storage.join(root, "sample", fingerprint)
        sample = manifests.load_or_discard(folder, discard=False) if manifests.is_fingerprint(fingerprint) else None
        if sample is None or sample.stage != "sample":
            continue
        for step in find(root, sample):
            names = made.stages.setdefault(step.stage, [])
            if step.manifest.fingerprint in names:
                continue
            names.append(step.manifest.fingerprint)
            if step.stage == "sample":
                for total, more in ((made.rows, by_source(step.rows)), (made.tokens, by_source(step.tokens))):
                    total.update({name: total.get(name, 0) + count for name, count in more.items()})
            if step.stage == "clean":
                for name, item in CleanResult.from_manifest(step.manifest).sources.items():
                    about = item["about"]
                    origin = about.get("licence") or NOT_STATED, about.get("revision", ""), about.get("origin", "")
                    made.sources[name] = Origin(*origin)
    return made
