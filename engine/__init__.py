"""What happens: agents made, turns run, sessions parsed, restored and replayed."""
