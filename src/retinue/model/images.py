"""Which images models read, told by the bytes themselves: providers refuse what is named wrongly, at every request."""

from __future__ import annotations

import binascii

from retinue.model.content import Image

__all__ = ["IMAGE_TYPES", "image_of", "image_type"]

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types of the images that models read."""


def image_type(data: bytes) -> str | None:
    """The media type of the image that begins so; None if models read no such thing."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for beginning, media in _BEGINNINGS if data.startswith(beginning)), None)


def image_of(encoded: str) -> Image | None:
    """The image that base64 text holds, whatever it was said to be; None if it holds none that models read."""
    text = "".join(encoded.split())
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    media_type = image_type(data)
    return None if media_type is None else Image(media_type, text)
