"""The statements that write a commit, and the choice between them."""
