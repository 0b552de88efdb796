"""`Policy`: a trained ONNX model that acts, from any trainer.

    policy = Policy.load("results/first/3DBall.onnx")
    policy.check(env.behavior_specs[behavior], behavior)
    while True:
        decisions, terminals = env.get_steps(behavior)
        env.set_actions(behavior, policy.act(decisions, terminals))
        env.step()

Models follow the contract between trainers and the engine (wire protocol, section 6). PyTorch is
not required.
"""

from mlagents.playing.policy import Policy, find_model
from mlagents.playing.zoo import find_in_zoo

__all__ = ["Policy", "find_in_zoo", "find_model"]
