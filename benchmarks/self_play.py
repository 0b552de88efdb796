"""Self-play: the time of acting by several snapshots, and what it learns.

python benchmarks/self_play.py acting      # several snapshots against one network
python benchmarks/self_play.py overhead    # a learner step against plain PPO
python benchmarks/self_play.py scissors    # rock, paper, scissors: exploitability
python benchmarks/self_play.py both        # steps to a win rate, with and without both sides
"""
