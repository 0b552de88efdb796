"""`Policy`: a trained ONNX model that acts, from any trainer.

    policy = Policy.load("results/first/3DBall.onnx")
    policy.check(env.behavior_specs[behavior], behavior)
    while True:
        decisions, terminals = env.get_steps(behavior)
        env.set_actions(behavior, policy.act(decisions, terminals))
        env.step()

The names and shapes of a model's inputs and outputs are those that Unity's inference engine reads,
so a model may come from any trainer for Unity. PyTorch is not required.
"""

from mlagents.playing.policy import Policy, find_model
from mlagents.playing.zoo import find_in_zoo

__all__ = ["Policy", "find_in_zoo", "find_model"]
