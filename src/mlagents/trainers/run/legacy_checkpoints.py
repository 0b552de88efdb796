"""Conversion of checkpoints of the original ML-Agents 1.x to the current format.

They contain the same networks under other names, and some layers are split into several parts.
Tensors missing from `NAMES` are not needed: they are copies, or constants of the export.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

NETWORKS = "Policy", "Optimizer:critic", "Optimizer:value_network", "Optimizer:target_network"
"""Networks to convert, by their names in checkpoints of both formats."""

NAMES = [
    (re.compile(theirs), ours)
    for theirs, ours in (
        # Encoders, with the names from `_numbered`.
        (r"fixed\.(\d+)\.normalizer\.(\w+)", r"body.observations.encoders.\1.normalizer.\2"),
        (
            r"fixed\.(\d+)\.(?:conv_layers|sequential)\.(.+)",
            r"body.observations.encoders.\1.convolutions.\2",
        ),
        (r"fixed\.(\d+)\.dense\.(?:0\.)?(\w+)", r"body.observations.encoders.\1.dense.0.\2"),
        (
            r"entities\.(\d+)\.self_ent_encoder\.seq_layers\.0\.(\w+)",
            r"body.observations.attention.encoders.\1.dense.\2",
        ),
        (
            r"network_body\.observation_encoder\.x_self_encoder\.seq_layers\.0\.(\w+)",
            r"body.observations.attention.encode_self.0.\1",
        ),
        (
            r"network_body\.observation_encoder\.rsa\.fc_[qkv]\.(\w+)",
            r"body.observations.attention.attention.queries_keys_values.\1",
        ),
        (
            r"network_body\.observation_encoder\.rsa\.fc_out\.(\w+)",
            r"body.observations.attention.attention.output.\1",
        ),
        # Layers after the encoders; `linear_encoder` is a name from before 1.0.
        (r"network_body\.(?:_body_endoder|linear_encoder)\.seq_layers\.(.+)", r"body.dense.\1"),
        (r"network_body\._body_endoder\.layers\.(\d+\.\w+)", r"body.dense.\1"),
        (r"goal_layer\.hypernet\.([02]\.\w+)", r"body.goal_layer.hidden.\1"),
        (r"goal_layer\.hypernet\.5\.(\w+)", r"body.goal_layer.weights.\1"),
        (r"goal_layer\.bias", r"body.goal_layer.bias"),
        (r"network_body\.lstm\.lstm\.(\w+)", r"body.memory.lstm.\1"),
        # Heads.
        (r"action_model\._continuous_distribution\.mu\.(\w+)", r"heads.mean.\1"),
        (r"action_model\._continuous_distribution\.log_sigma(.*)", r"heads.log_std\1"),
        (r"action_model\._discrete_distribution\.branches\.\d+\.(\w+)", r"heads.logits.\1"),
        (r"value_heads\.value_heads\.[^.]+\.(\w+)", r"values.\1"),
        # The critic of MA-POCA.
        (r"network_body\.obs_encoder\.self_ent_encoder\.seq_layers\.(.+)", r"without_action.\1"),
        (
            r"network_body\.obs_action_encoder\.self_ent_encoder\.seq_layers\.(.+)",
            r"with_action.\1",
        ),
        (r"network_body\.self_attn\.fc_[qkv]\.(\w+)", r"attention.queries_keys_values.\1"),
        (r"network_body\.self_attn\.fc_out\.(\w+)", r"attention.output.\1"),
        (r"network_body\._current_max_agents", r"largest"),
    )
]
"""Patterns of original names, with the current names. Several original tensors that map to one
current tensor are its rows, in order."""

_ENCODER = re.compile(r"network_body\.observation_encoder\.processors\.(\d+)\.(.+)")


def is_legacy(state: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint was saved by the original ML-Agents."""
    policy = state.get("Policy")
    return isinstance(policy, Mapping) and any(n.startswith("network_body.") for n in policy)


def converted(state: Mapping[str, Any], signals: Sequence[str]) -> dict[str, Any]:
    """Return the networks and step count of an original checkpoint in the current format.

    Optimizers and networks of reward signals are left out.

    Args:
        state: Content of the original checkpoint.
        signals: Names of the reward signals that the critic estimates, in order.
    """
    networks = {name: _network(state[name], signals) for name in NETWORKS if name in state}
    for name in networks.keys() & {"Optimizer:value_network", "Optimizer:target_network"}:
        # SAC's value networks use the actor's normalizers; in the original, they have copies.
        of_network = networks[name].items()
        networks[name] = {part: each for part, each in of_network if ".normalizer." not in part}
    (step,) = state["global_step"].values()
    return {**networks, "global_step": int(step)}


def _network(theirs: Mapping[str, Tensor], signals: Sequence[str]) -> dict[str, Tensor]:
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in _numbered(_with_values_of(signals, theirs)):
        for pattern, ours in NAMES:
            if match := pattern.fullmatch(name):
                parts.setdefault(match.expand(ours), []).append(tensor)
                break
    network = {name: torch.cat(each) if len(each) > 1 else each[0] for name, each in parts.items()}
    for name in list(network):
        if name.endswith(".normalizer.running_mean"):
            _convert_normalizer(network, name.removesuffix("running_mean"))
    attention = "body.observations.attention."
    if f"{attention}encode_self.0.bias" in network:
        # The original puts the agent's other observations before the entity's features, not after.
        n_self = len(network[f"{attention}encode_self.0.bias"])
        for name in network:
            if name.startswith(f"{attention}encoders.") and name.endswith(".weight"):
                network[name] = network[name].roll(-n_self, dims=1)
    if "heads.log_std" in network:
        network["heads.log_std"] = network["heads.log_std"].flatten()  # from (1, A)
    if "largest" in network:  # the critic of MA-POCA, which is one network without a body
        network = {name.removeprefix("body."): tensor for name, tensor in network.items()}
        network["largest"] = network["largest"].float()
    return network


def _numbered(theirs: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Rename layers whose index or kind does not follow from the name alone.

    The original numbers encoders by observation; here, encoders of fixed size and of entities have
    separate numbers. The goal layer is the layer of the dense block that has a `hypernet`.
    """
    entities = sorted(
        {
            int(match[1])
            for name in theirs
            if (match := _ENCODER.fullmatch(name)) and match[2].startswith("self_ent_encoder.")
        }
    )
    marks = (name for name in theirs if name.endswith(".hypernet.0.weight"))
    goal_layer = next(marks, "").removesuffix("hypernet.0.weight")
    for name, tensor in theirs.items():
        if match := _ENCODER.fullmatch(name):
            index, rest = int(match[1]), match[2]
            if index in entities:
                yield f"entities.{entities.index(index)}.{rest}", tensor
            else:
                yield f"fixed.{index - sum(e < index for e in entities)}.{rest}", tensor
        elif goal_layer and name.startswith(goal_layer):
            yield f"goal_layer.{name.removeprefix(goal_layer)}", tensor
        else:
            yield name, tensor


def _with_values_of(signals: Sequence[str], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put the value heads in the order of `signals`; drop the heads of other signals."""
    others = {name: each for name, each in theirs.items() if not name.startswith("value_heads.")}
    heads = [f"value_heads.value_heads.{s}.{part}" for s in signals for part in ("weight", "bias")]
    return others | {name: theirs[name] for name in heads if name in theirs}


def _convert_normalizer(network: dict[str, Tensor], normalizer: str) -> None:
    """Convert the three statistics of a normalizer to the buffers of `layers.Normalizer`."""
    mean = network.pop(f"{normalizer}running_mean").double()
    squares = network.pop(f"{normalizer}running_variance").double()
    count = network.pop(f"{normalizer}normalization_steps").double()
    ours = {
        "count": count,
        "mean": mean,
        "squares": squares,
        "shift": mean,
        "scale": torch.rsqrt(squares / count),
    }
    network.update({f"{normalizer}{name}": tensor for name, tensor in ours.items()})
