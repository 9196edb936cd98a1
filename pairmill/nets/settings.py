"""The settings of a net, and the registry of nets: one entry in ``NETS`` is all that a net is outside its own module.

An entry names the module's class, and says in numbers what follows from the settings: stacks, calls, which of them are
differentiated, cost, defaults. So settings are read, and costs are counted, without torch.

Source: HRM-Text (arXiv 2506.21734 and its public configuration files) for the recurrent nets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pairmill.errors import UsageError
from pairmill.fields import Checked, is_given, setting


class Size(NamedTuple):
    """A published size: blocks, width, heads. Expansion is 4, head width 128."""

    layers: int
    width: int
    heads: int


SIZES: Final = {
    "B": Size(12, 1024, 8),
    "L": Size(24, 1280, 10),
    "XL": Size(32, 1536, 12),
    "XXL": Size(72, 1792, 14),
    "XXL_wide": Size(32, 2560, 20),
}


class Recorded(NamedTuple):
    """How many calls, the last ones, are differentiated: in the place of H, and in the place of L."""

    high: int
    low: int


@dataclass(frozen=True, kw_only=True)
class NetKind:
    """A net: its class, and in numbers what follows from its settings.

    Attributes:
        module: ``module.Class`` of this package. A :class:`~pairmill.nets.net.Net` is made of the settings and the
            size of the vocabulary; any other module of the settings alone, and ``TextNet`` puts an embedding before it
            and a head after it.
        stacks: letters of its stacks: L, H or both; a net without recurrence has an H alone.
        calls: how often a forward pass calls each stack, by letter.
        recorded: how many of these calls are differentiated, by the settings and b (:attr:`grows`).
        reaches_embedding: whether the embedding has a gradient then.
        halves: whether ``half_layers`` may give each stack half of the layers: of two stacks, or of one in both places.
        grows: whether b, the number of differentiated calls, grows from ``bp_min`` to ``bp_max``.
        options: settings that it reads and not every net does; any other net refuses them.
        defaults: its values of settings, where they differ from those of every net.
        gated: whether attention has a gate.
        round_feed: rounds the width of the MLP by the rule, before it becomes a multiple of 256.
        norms: counts the weights of learned norms.
        note: what a person should know before a run of these settings; empty = nothing.
        transformers: the class in transformers that computes it, a name in train's export; empty = none.
        exported: which of its stacks is H and which L in that class, by the beginning of tensors' names.
    """

    module: str
    stacks: str
    calls: Callable[[ModelSettings], dict[str, int]]
    recorded: Callable[[ModelSettings, int], Recorded]
    reaches_embedding: Callable[[ModelSettings, Recorded], bool]
    halves: bool = False
    grows: bool = False
    options: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gated: bool = True
    round_feed: Callable[[float], int] = round
    norms: Callable[[ModelSettings], int] = lambda _: 0
    note: Callable[[ModelSettings], str] = lambda _: ""
    transformers: str = ""
    exported: Mapping[str, str] = field(default_factory=dict)


def _recorded_hrm(model: ModelSettings, steps: int) -> Recorded:
    high = min(model.H_cycles, steps - 1)
    return Recorded(high, min(model.H_cycles * model.L_cycles, steps - high))


def _recorded_trm(model: ModelSettings, _: int) -> Recorded:
    return Recorded(min(model.H_cycles, model.H_bp_steps), min(model.H_cycles * model.L_cycles, model.L_bp_steps))


def _in_first_call_of_h(model: ModelSettings, recorded: Recorded) -> bool:
    # The input of hrm and trm enters the first call of H, or of what takes its place, and no later one.
    return recorded.high == model.H_cycles


def _note_hrm(model: ModelSettings) -> str:
    if model.bp_min > model.H_cycles:
        return ""
    when = "during the warm-up of bp_min" if model.bp_max > model.H_cycles else "ever"
    return f"the embedding learns nothing {when}: it takes bp_min {model.H_cycles + 1}"


def _note_trm(model: ModelSettings) -> str:
    if model.H_bp_steps >= model.H_cycles:
        return ""
    return f"the embedding learns nothing: it takes H_bp_steps {model.H_cycles}"


def _norms_llama(model: ModelSettings) -> int:
    head = model.width // model.heads if model.qk_norm else 0
    return model.layers * 2 * (model.width + head) + model.width


_TRANSFORMER: Final = NetKind(
    module="transformer.Transformer",
    stacks="H",
    calls=lambda _: {"H": 1},
    recorded=lambda *_: Recorded(1, 0),
    reaches_embedding=lambda *_: True,
    transformers="hrm_text",
    exported={"H_module": "model.layers."},
)

_TRM: Final = NetKind(
    module="trm.TRM",
    stacks="L",
    calls=lambda model: {"L": model.H_cycles * model.L_cycles + model.H_cycles},
    recorded=_recorded_trm,
    reaches_embedding=_in_first_call_of_h,
    halves=True,
    # As published, one of the two calls for H is differentiated, so the embedding never learns: profile hrm_text.
    defaults={"H_cycles": 2, "L_cycles": 1, "H_bp_steps": 2, "L_bp_steps": 1},
    note=_note_trm,
    transformers="hrm_text",
    exported=dict.fromkeys(("H_module", "L_module"), "model.L_level.core.layers."),
)

NETS: Final[dict[str, NetKind]] = {
    "transformer": _TRANSFORMER,
    "hrm": NetKind(
        module="hrm.HRM",
        stacks="LH",
        calls=lambda model: {"L": model.H_cycles * model.L_cycles, "H": model.H_cycles},
        recorded=_recorded_hrm,
        reaches_embedding=_in_first_call_of_h,
        halves=True,
        grows=True,
        options=frozenset({"H_override"}),
        # As published, bp_min is 2, so the embedding learns nothing at first: profile hrm_text.
        defaults={"half_layers": True, "H_cycles": 2, "L_cycles": 3, "bp_max": 5, "bp_warmup_ratio": 0.2},
        note=_note_hrm,
        transformers="hrm_text",
        exported={"H_module": "model.H_level.core.layers.", "L_module": "model.L_level.core.layers."},
    ),
    "trm": _TRM,
    "trm_match_recurrence": replace(
        _TRM, defaults={"half_layers": True, "H_cycles": 2, "L_cycles": 3, "H_bp_steps": 2, "L_bp_steps": 3}
    ),
    "rins": NetKind(
        module="rins.RINS",
        stacks="LH",
        calls=lambda model: {"L": model.L_cycles, "H": 1},
        recorded=lambda model, _: Recorded(1, min(model.L_cycles, model.L_bp_cycles)),
        reaches_embedding=lambda _, recorded: recorded.low > 0,
        halves=True,
        defaults={"half_layers": True, "L_cycles": 7, "L_bp_cycles": 4},
    ),
    "ut": NetKind(
        module="ut.UT",
        stacks="L",
        calls=lambda model: {"L": model.cycles},
        recorded=lambda model, _: Recorded(0, min(model.cycles, model.bp_cycles)),
        reaches_embedding=lambda _, recorded: recorded.low > 0,
        defaults={"cycles": 4, "bp_cycles": 2},
    ),
    "llama": replace(
        _TRANSFORMER,
        module="llama.Llama",
        options=frozenset({"key_value_heads", "qk_norm", "tied"}),
        defaults={"norm_eps": 1e-5, "attention": "causal", "init": "megatron", "init_std": 0.02},
        gated=False,
        round_feed=int,
        norms=_norms_llama,
        transformers="llama",
        exported={},
    ),
}
"""The registry of nets."""

if TYPE_CHECKING:
    NetName = str
    SizeName = str
else:
    NetName = Literal[tuple(NETS)]
    SizeName = Literal[("none", *SIZES)]


@dataclass(frozen=True, kw_only=True)
class Override(Checked):
    """Blocks of the H stack that differ from the others. A value of null is that of the net."""

    layers: int | None = setting(None, help="blocks of the H stack; it is not halved", at_least=1)
    heads: int | None = setting(None, help="attention heads", at_least=1)
    expansion: float | None = setting(None, help="width of the MLP")
    norm: Literal["pre", "post"] | None = setting(None, help="pre or post")
    norm_eps: float | None = setting(None, help="added to the mean square")
    rope_base: float | None = setting(None, help="of the rotary positions")
    init: Literal["lecun_normal", "fixed_normal", "megatron"] | None = setting(None, help="rule of the initial weights")
    init_std: float | None = setting(None, help="its standard deviation")

    def differing(self) -> dict[str, Any]:
        """Return the values that differ from those of the net."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Checked):
    """The net."""

    net: NetName = setting("transformer", help=", ".join(NETS))
    size: SizeName = setting(
        "none", help=f"none, or a published one ({', '.join(SIZES)}), which sets layers, width, heads and expansion"
    )
    layers: int = setting(4, help="blocks; with half_layers, of both stacks together", at_least=1)
    width: int = setting(128, help="of the residual stream", at_least=1)
    heads: int = setting(4, help="attention heads; they divide the width into even parts", at_least=1)
    key_value_heads: int = setting(
        0, help="of llama, key and value heads; 0 = as many as heads", at_least=0, divides="heads"
    )
    expansion: float = setting(
        4.0, help="the MLP is 2/3 of this many times as wide as the net, rounded up to a multiple of 256", above=0
    )
    feed_width: int = setting(0, help="of the MLP, in place of the rule; 0 = by the rule", at_least=0)
    norm: Literal["pre", "post"] = setting("pre", help="before each layer (pre) or after it (post)")
    norm_eps: float = setting(1e-6, help="added to the mean square", above=0)
    pos_emb: Literal["rope"] = setting("rope", help="rope is the only one")
    rope_base: float = setting(10_000.0, help="of the rotary positions", above=0)
    attention: Literal["prefixlm", "causal"] = setting(
        "prefixlm", help="prefixlm (an instruction sees all of itself) or causal"
    )
    init: Literal["lecun_normal", "fixed_normal", "megatron"] = setting(
        "lecun_normal", help="rule of the initial weights; lecun_normal, fixed_normal or megatron"
    )
    init_std: float = setting(
        0.0, help="standard deviation of fixed_normal and megatron; 0 = the rule's own", at_least=0
    )
    half_layers: bool = setting(
        False, help="of two stacks each has half the layers; of trm_match_recurrence and rins too"
    )
    H_cycles: int = setting(2, help="of hrm and trm, how often H is called", at_least=1)
    L_cycles: int = setting(3, help="of hrm, trm and rins, how often L is called, for each call of H", at_least=1)
    cycles: int = setting(4, help="of ut, how often the stack is called", at_least=1)
    H_bp_steps: int = setting(2, help="of trm, the last calls for H that are differentiated", at_least=0)
    L_bp_steps: int = setting(1, help="of trm, the last calls for L that are differentiated", at_least=0)
    L_bp_cycles: int = setting(4, help="of rins, the last calls of L that are differentiated", at_least=0)
    bp_cycles: int = setting(2, help="of ut, the last calls that are differentiated", at_least=0)
    bp_min: int = setting(3, help="of hrm, differentiated calls at the beginning", at_least=1, at_most="bp_max")
    bp_max: int = setting(5, help="of hrm, differentiated calls after the warm-up")
    bp_warmup_ratio: float = setting(
        0.2, help="of hrm, the part of the run in which they grow; 0 = bp_max from the start", at_least=0, at_most=1
    )
    H_override: Override = setting(Override, help="of hrm, blocks of the H stack that differ")
    qk_norm: bool = setting(False, help="of llama, queries and keys are normalised")
    tied: bool = setting(False, help="of llama, embedding and head are one matrix")

    @classmethod
    def for_net(cls, net: NetName, **values: Any) -> ModelSettings:
        """Make settings of a net: its own defaults, those of the size among the values, and the values."""
        size = SIZES.get(values.get("size", "none"))
        sized = {} if size is None else {**size._asdict(), "expansion": 4.0}
        return cls(**{"net": net, **NETS[net].defaults, **sized, **values})

    @property
    def kind(self) -> NetKind:
        """The registered net."""
        return NETS[self.net]

    @property
    def causal(self) -> bool:
        """Whether no token sees a later one, not even within the prefix."""
        return self.attention == "causal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.half_layers and not self.kind.halves:
            raise UsageError("this net has one stack", where="half_layers", got=self.net, expected="false")
        if self.half_layers and self.layers % 2:
            raise UsageError(
                "odd",
                where="layers",
                got=str(self.layers),
                expected="an even number, as half_layers is true",
                hint=f"{self.layers + 1} or {max(2, self.layers - 1)}",
            )
        self._check_heads("heads", self.heads)
        self._check_heads("H_override.heads", self.H_override.heads or self.heads)
        for name in sorted(set().union(*(kind.options for kind in NETS.values())) - self.kind.options):
            if is_given(self, name):
                nets = [net for net, kind in NETS.items() if name in kind.options]
                expected = f"model.net: {' or '.join(nets)}"
                raise UsageError(f"only {' and '.join(nets)} has it", where=name, got=self.net, expected=expected)

    def _check_heads(self, name: str, heads: int) -> None:
        if self.width % heads or self.width // heads % 2:
            near = [n for n in range(1, self.width + 1) if self.width % n == 0 and self.width // n % 2 == 0]
            hint = f"{min(near, key=lambda n: abs(n - heads))} would do" if near else "make the width even"
            expected = f"heads that divide the width {self.width} into even parts"
            raise UsageError("heads do not divide the width", where=name, got=str(heads), expected=expected, hint=hint)
