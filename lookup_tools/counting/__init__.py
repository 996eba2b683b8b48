"""Token ids to sorted n-gram counts."""
