"""Pure decisions, ``(state, command, now) -> decision``: each rule of both backends, once."""
