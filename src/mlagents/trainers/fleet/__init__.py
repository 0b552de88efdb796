"""Where agents act: in this process, or in rollout workers elsewhere."""
