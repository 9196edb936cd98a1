"""Options of the train stage."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pairmill.engine.options import RunConfig, option
from pairmill.formats import settings_file
from pairmill.formats.sample_folder import PLACE
from pairmill.stages.train.start import Take
from pairmill.training.settings import TrainSettings

Device = Literal["auto", "cpu", "cuda"]


@dataclass(kw_only=True)
class TrainConfig(RunConfig):
    """Train a net on a sampled folder, on flat token files, or on a data set of the Hub."""

    share: str = option(
        "",
        help="not of this stage, whose run is not shared out; torchrun or processes= starts several processes",
        changes_bytes=False,
        form=(r"(?!)", "nothing: a run is not shared out"),
        hint="start it with torchrun, or processes=",
    )
    sampled: list[str] = option(
        [],
        help="a sampled folder, a node's folder with PLAN, or a plan of sample; several as name=path, with data.phases",
        changes_bytes=False,  # data, settings and weights are inputs, by content
        takes="plan",
        unless=("windows", "hub"),
    )
    windows: list[str] = option(
        [], help="folders of flat token files, such as windows of tokenize; several as name=path", changes_bytes=False
    )
    hub: str = option("", help="a data set of the Hugging Face Hub, or a folder of its library", changes_bytes=False)
    tokenizer: str = option(
        "",
        help="tokenizer.json: required with hub, else for generation and export where the data lack it",
        changes_bytes=False,
    )
    held_out: str = option(
        "", help="a folder to evaluate on: the held-out sample, or windows; empty = none", changes_bytes=False
    )
    samples_path: str = option(
        PLACE,
        help="local folder in which the arrays of a plan are made; a last part {fingerprint} means the sample's",
        changes_bytes=False,
    )
    train_config: str = option(
        settings_file.DEFAULT,
        help="net, optimizer, schedule and length, as a YAML file; default = what is built in, as in "
        "configs/train_config.yaml",
        changes_bytes=False,
    )
    set: list[str] = option(
        [], help="settings in place of the file's, as optimizer.lr=0.001,training.epochs=2", changes_bytes=False
    )
    policy: str = option(
        "",
        help="policy.yaml: a plan that was drawn before it took records out is refused (docs/removing.md)",
        changes_bytes=False,
    )
    weights_from: str = option(
        "",
        help="begin with the weights of an earlier run or checkpoint, at step 1: fine-tuning; empty = new weights",
        changes_bytes=False,
    )
    weights: Take = option(
        "ema",
        help="what weights_from gives: ema (the average), current, or all: current ones with the optimizer's state",
        changes_bytes=False,
    )
    resume_from: str = option(
        "",
        help="go on from checkpoints of the same run in another root, or of a run on the plan that this one extends; "
        "those of its own folder are found without it",
        changes_bytes=False,
    )
    processes: int = option(
        0,
        help="processes on this machine, 0 = one per GPU, or 1; torchrun says it itself",
        changes_bytes=False,
        at_least=0,
    )
    device: Device = option("auto", help="auto = a GPU if there is one", changes_bytes=False)
    price: float = option(
        0.0, help="price of a device for an hour, for the report; 0 = not known", changes_bytes=False, at_least=0
    )

    @cached_property
    def settings(self) -> TrainSettings:
        """What the file and ``set`` say; read once."""
        return TrainSettings.load(self.train_config, self.set)
