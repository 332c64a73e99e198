"""Reinforcement learning: the policy and PPO. The communicator is injected, never imported."""
