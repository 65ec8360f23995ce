"""Byte stores for attachments beside the database itself: a folder, and S3."""
