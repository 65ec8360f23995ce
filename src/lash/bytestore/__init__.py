"""Byte stores for attachments outside the database: a directory, and S3."""
