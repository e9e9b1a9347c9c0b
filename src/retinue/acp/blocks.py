"""Blocks of content, which prompts and updates are made of."""

from __future__ import annotations

from typing import TypeAlias

from retinue.acp.wire import Received, Sent

__all__ = [
    "AudioBlock",
    "Block",
    "ImageBlock",
    "ResourceBlock",
    "ResourceLink",
    "TextBlock",
]


class TextBlock(Sent, frozen=True, tag="text", tag_field="type"):
    """Text, or Markdown."""

    text: str


class ImageBlock(Sent, frozen=True, tag="image", tag_field="type"):
    """An image as base64 text."""

    data: str
    mime_type: str


class AudioBlock(Received, frozen=True, tag="audio", tag_field="type"):
    """Sound, which Retinue does not take."""


class ResourceLink(Received, frozen=True, tag="resource_link", tag_field="type"):
    """Something that the agent may read."""

    name: str
    uri: str
    title: str | None = None
    description: str | None = None


class _Contents(Received, frozen=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(Received, frozen=True, tag="resource", tag_field="type"):
    """Something that comes with the prompt: text, or base64 text."""

    resource: _Contents


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ResourceLink | ResourceBlock
