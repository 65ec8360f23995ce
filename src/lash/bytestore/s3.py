"""The bytes of attachments in an S3-compatible object store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from lash.base.limits import check_digest
from lash.errors import ConfigError, StorageFailure, StoreError, StoreUnavailable
from lash.model.session.session import Durability

if TYPE_CHECKING:
    from obstore.store import S3Config

_MAX_RETRIES: Final = 3
_RETRY_FOR: Final = timedelta(seconds=30)
"""Retries of the driver, for throttling and short outages; a worker retries the rest."""
_DEBUG_TEXT: Final = "\n\nDebug source"
"""Where the driver's messages turn into dumps of its structures."""


class S3Bytes:
    """Objects ``<prefix>/sha256/<2 digits>/<id>`` in a bucket, or a part of one, that belongs to one storage.

    The contract is `lash.stores.attachment.ByteStore`. Options that are not given (region, keys) are read from
    the environment, as AWS tools do. An ``endpoint`` names a server other than AWS; with ``http://`` the connection is
    not encrypted. An object is written by one request, whole or not at all.
    """

    durability: Final = Durability.DURABLE

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Check the options, without a request to the server."""
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import S3Store
        except ModuleNotFoundError:
            raise ConfigError("attachments in S3 need the driver obstore: pip install 'lash-runtime[s3]'") from None
        given = {
            "endpoint": endpoint,
            "region": region,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
            "session_token": session_token,
        }
        config: S3Config = {name: text for name, text in given.items() if text is not None}  # type: ignore[assignment]
        try:
            self._store = S3Store(
                bucket,
                prefix=prefix or None,
                config=config,
                client_options={
                    "allow_http": endpoint is not None and endpoint.startswith("http://"),
                    "timeout": timedelta(seconds=timeout_s),
                },
                retry_config={"max_retries": _MAX_RETRIES, "retry_timeout": _RETRY_FOR},
            )
        except (exceptions.BaseError, ValueError, TypeError) as error:
            raise ConfigError(f"invalid options for bucket {bucket!r}: {error}") from error
        self._obstore = obstore
        self._errors = exceptions
        self._name = f"s3://{bucket}/{prefix}"

    async def put(self, attachment_id: str, content: bytes) -> None:
        # One request: the server would keep, and charge for, the parts of a failed multipart upload.
        try:
            await self._obstore.put_async(self._store, _key(attachment_id), content, use_multipart=False)
        except (self._errors.BaseError, OSError) as error:
            raise self._failure("write", attachment_id, error) from error

    async def get(self, attachment_id: str) -> bytes | None:
        try:
            found = await self._obstore.get_async(self._store, _key(attachment_id))
            return bytes(await found.bytes_async())
        except (self._errors.BaseError, OSError) as error:
            if _is_absent(error):
                return None
            raise self._failure("read", attachment_id, error) from error

    async def delete(self, attachment_id: str) -> None:
        try:
            await self._obstore.delete_async(self._store, _key(attachment_id))
        except (self._errors.BaseError, OSError) as error:
            if not _is_absent(error):
                raise self._failure("delete", attachment_id, error) from error

    async def sweep_stale(self) -> int:
        return 0

    def _failure(self, what: str, attachment_id: str, error: Exception) -> StoreError:
        """Return the error. Only after a refusal is it certain that nothing happened."""
        cause, _, _ = str(error).partition(_DEBUG_TEXT)
        message = f"cannot {what} attachment {attachment_id} in {self._name}: {cause}"
        refusals = (FileNotFoundError, self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
        if isinstance(error, refusals):
            return StorageFailure(message)
        return StoreUnavailable(message, outcome_unknown=what != "read")


def _is_absent(error: Exception) -> bool:
    """Return whether the object does not exist; a missing bucket is another error."""
    return isinstance(error, FileNotFoundError) and "NoSuchKey" in str(error)


def _key(attachment_id: str) -> str:
    digest = check_digest("attachment_id", attachment_id)
    return f"sha256/{digest[:2]}/{digest}"
