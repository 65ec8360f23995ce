"""What AG-UI and the AI SDK share: one turn, sent once, followed, and corrected by its commit."""
