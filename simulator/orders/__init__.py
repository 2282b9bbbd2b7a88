"""Orders: how a replay decides what runs next, and replays after a change."""
