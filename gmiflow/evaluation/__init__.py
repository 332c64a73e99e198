"""What a trained policy does: episodes without exploration, in numbers and as movies."""
