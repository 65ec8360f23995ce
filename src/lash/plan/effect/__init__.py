"""Rules of recorded effects, their scopes and claims."""
