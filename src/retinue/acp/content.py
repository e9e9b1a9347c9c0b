"""What a client puts into a prompt as content that a model reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import Raw

from retinue.acp.blocks import AudioBlock, Block, ImageBlock, ResourceBlock, ResourceLink, TextBlock
from retinue.base.frames import INVALID_PARAMS, Failure
from retinue.model.content import Image, InputBlock, Text
from retinue.model.images import IMAGE_TYPES, image_of

__all__ = ["prompt_content"]

_block = msgspec.json.Decoder(Block)
_CLOSING = re.compile(r"<(?=\s*/?\s*resource\b)", re.IGNORECASE)


def prompt_content(blocks: Sequence[Raw]) -> tuple[InputBlock, ...]:
    """The blocks in order. A resource stands in a frame that its text cannot close.

    Raises: Failure for a block that cannot be read, with its place, and for a prompt that says nothing.
    """
    found = [block for number, raw in enumerate(blocks, 1) if (block := _content(number, raw)) is not None]
    if not found:
        raise Failure(INVALID_PARAMS, "the prompt is empty")
    return tuple(found)


def _content(number: int, raw: Raw) -> InputBlock | None:
    try:
        block = _block.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Failure(INVALID_PARAMS, f"block {number} of the prompt: {error}") from error
    match block:
        case TextBlock(text=text):
            return Text(text) if text.strip() else None
        case ImageBlock(data=data, mime_type=media_type):
            return _image(number, data, media_type)
        case ResourceLink():
            words = block.description or block.title
            return Text(f"[{block.name}]({block.uri})" + (f": {words}" if words else ""))
        case ResourceBlock(resource=contents) if contents.text is not None:
            text = _CLOSING.sub("&lt;", contents.text)
            return Text(f'<resource uri="{contents.uri}">\n{text.rstrip(chr(10))}\n</resource>\n')
        case ResourceBlock(resource=contents) if contents.blob is not None:
            return _image(number, contents.blob, contents.mime_type or "of an unknown type")
        case ResourceBlock():
            raise Failure(INVALID_PARAMS, f"block {number} of the prompt: the resource has neither text nor blob")
        case AudioBlock():
            raise Failure(INVALID_PARAMS, f"block {number} of the prompt: sound cannot be read here")
        case _:
            assert_never(block)


def _image(number: int, data: str, media_type: str) -> Image:
    image = image_of(data)
    if image is None:
        known = f"no base64 text of an image that models read ({', '.join(IMAGE_TYPES)})"
        raise Failure(INVALID_PARAMS, f"block {number} of the prompt: this {media_type} is {known}")
    return image
