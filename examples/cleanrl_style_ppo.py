"""Train a world with PPO written out in one file, in the manner of CleanRL.

    pip install ".[train,gym]"    # in the folder of the project
    python examples/cleanrl_style_ppo.py --env mlagents/3DBall-v0
    python examples/cleanrl_style_ppo.py --env mlagents/Basic-v0 --num-envs 16

Every agent of the scene is an environment of one Gymnasium vector environment. An episode that ends
starts again in the same step, so the last observation of an episode is in `infos["final_obs"]`. The
value of a truncated episode includes the rewards that would have followed.
"""

import argparse
import time
from collections import deque

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import mlagents_envs.envs  # noqa: F401  # registers the worlds with Gymnasium


class Agent(nn.Module):
    """Two networks: one for the policy, one for the value."""

    def __init__(self, envs: gymnasium.vector.VectorEnv, hidden: int) -> None:
        super().__init__()
        n_inputs = envs.single_observation_space.shape[0]
        self.is_discrete = isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
        if self.is_discrete:
            n_outputs = int(envs.single_action_space.n)
        else:
            n_outputs = envs.single_action_space.shape[0]
        self.actor = self.network(n_inputs, hidden, n_outputs, gain=0.01)
        self.critic = self.network(n_inputs, hidden, 1, gain=1.0)
        self.log_std = nn.Parameter(torch.full((n_outputs,), -0.5))

    @staticmethod
    def network(n_inputs: int, hidden: int, n_outputs: int, gain: float) -> nn.Sequential:
        """Make two hidden layers and a head whose initial weights have size `gain`."""
        layers = [nn.Linear(n_inputs, hidden), nn.Linear(hidden, hidden)]
        head = nn.Linear(hidden, n_outputs)
        for layer in (*layers, head):
            nn.init.orthogonal_(layer.weight, gain if layer is head else 2**0.5)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), head)

    def policy(self, observation: torch.Tensor) -> torch.distributions.Distribution:
        """Return the distribution of actions, (N,)."""
        output = self.actor(observation)
        if self.is_discrete:
            return Categorical(logits=output)
        return Independent(Normal(output, self.log_std.exp()), 1)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Return the expected future reward, (N,)."""
        return self.critic(observation).squeeze(-1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="mlagents/3DBall-v0")
    parser.add_argument("--num-envs", type=int, default=48, help="agents that play side by side")
    parser.add_argument("--total-steps", type=int, default=400_000)
    parser.add_argument("--num-steps", type=int, default=256, help="steps per agent and update")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--minibatch", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--entropy", type=float, default=0.0)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)  # small networks are slower with more
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    envs = RecordEpisodeStatistics(gymnasium.make_vec(args.env, num_envs=args.num_envs))
    agent = Agent(envs, args.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    returns: deque[float] = deque(maxlen=100)
    started = time.perf_counter()

    shape = (args.num_steps, args.num_envs)
    observations = torch.zeros(*shape, *envs.single_observation_space.shape)
    actions = torch.zeros(*shape, *envs.single_action_space.shape)
    log_probs, rewards, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    ends, next_values, counts = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)

    array, infos = envs.reset(seed=args.seed)
    observation = torch.from_numpy(array)
    n_updates = max(args.total_steps // (args.num_steps * args.num_envs), 1)
    for update in range(1, n_updates + 1):
        for step in range(args.num_steps):
            with torch.no_grad():
                policy = agent.policy(observation)
                action = policy.sample()
                observations[step], actions[step] = observation, action
                log_probs[step], values[step] = policy.log_prob(action), agent.value(observation)
            counts[step] = torch.from_numpy(infos["acting"])
            numbers = action.numpy()
            if not agent.is_discrete:
                numbers = numbers.clip(-1.0, 1.0)
            array, reward, terminated, truncated, infos = envs.step(numbers)
            observation = torch.from_numpy(array)
            rewards[step] = torch.from_numpy(reward)
            ends[step] = torch.from_numpy(terminated | truncated)
            with torch.no_grad():
                next_values[step] = agent.value(observation)
                next_values[step, torch.from_numpy(terminated)] = 0.0
                for slot in np.flatnonzero(truncated & ~terminated):
                    final = torch.from_numpy(infos["final_obs"][slot])
                    next_values[step, slot] = agent.value(final)
            if "episode" in infos:
                returns.extend(infos["episode"]["r"][infos["_episode"]])

        advantages = torch.zeros(shape)
        carried = torch.zeros(args.num_envs)
        for step in reversed(range(args.num_steps)):
            delta = rewards[step] + args.gamma * next_values[step] - values[step]
            carried = delta + args.gamma * args.gae_lambda * (1.0 - ends[step]) * carried
            advantages[step] = carried

        # Slots whose agent did not ask had no influence on the step.
        taken = counts.flatten() > 0
        batch = [
            column.flatten(0, 1)[taken]
            for column in (observations, actions, log_probs, advantages, advantages + values)
        ]
        for _ in range(args.epochs):
            for rows in np.array_split(
                rng.permutation(len(batch[0])), max(len(batch[0]) // args.minibatch, 1)
            ):
                obs, act, old_log_prob, advantage, target = (
                    c[torch.from_numpy(rows)] for c in batch
                )
                policy = agent.policy(obs)
                ratio = (policy.log_prob(act) - old_log_prob).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1.0 - args.clip, 1.0 + args.clip)
                policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
                value_loss = (agent.value(obs) - target).square().mean()
                loss = policy_loss + 0.5 * value_loss - args.entropy * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

        if returns and (update % 4 == 0 or update == n_updates):
            steps = update * args.num_steps * args.num_envs
            rate = steps / (time.perf_counter() - started)
            print(f"step {steps:8}  mean reward {np.mean(returns):7.2f}  {rate:6.0f} steps/s")
    envs.close()


if __name__ == "__main__":
    main()
