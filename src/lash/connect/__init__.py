"""Opens a storage by its URL."""
