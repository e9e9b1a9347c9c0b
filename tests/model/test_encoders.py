"""The bytes of a request are a promise: logs name the encoder's version, and each version has its own bytes."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import MessageId
from retinue.errors import ConfigError
from retinue.model.adapters.anthropic_encoder import ANTHROPIC_VERSION, AnthropicEncoder
from retinue.model.adapters.encoders import encoder_again
from retinue.model.adapters.openai_encoder import CHAT_VERSION, ChatEncoder
from retinue.model.adapters.providers import PROVIDERS
from retinue.model.adapters.quirks import Quirks
from retinue.model.client import ModelRequest, ToolSpec, Transcript
from retinue.model.content import AssistantMessage, Image, Message, Reasoning, Text, ToolCall, ToolMessage, UserMessage
from retinue.model.encoding import Encoder, RunningDigest, sent_of

CHAT_BYTES = {1: "51ce6c27620910abc742a185de6a8a2b3b75c354c365afc7f4d28fb20595c988"}
"""By version: the SHA-256 of everything below. Never change an entry; add one."""
ANTHROPIC_BYTES = {1: "78115129ad206f6ef47eff6f6dc6ecd87ce38cde4b6a1e6d094836e202532ba3"}

TOOL = ToolSpec(name="echo", description="Répète.", parameters={"type": "object", "properties": {"b": {}, "a": {}}})
TALK: tuple[Message, ...] = (
    UserMessage(MessageId("m1"), (Text("see"), Image("image/png", "aGk="), Text("this\n"), Text("too"))),
    UserMessage(MessageId("m2"), ()),
    AssistantMessage((Reasoning("hm", "proof"), Text("I "), Text("look"), ToolCall("c1", "echo", '{"a": 1}'))),
    ToolMessage("c1", (Text("two\nlines"), Image("image/jpeg", "aGk="))),
    AssistantMessage((ToolCall("c2", "echo", "{bad"), ToolCall("c3", "echo", " "), ToolCall("c4", "echo", "[1]"))),
    ToolMessage("c2", (Text("Error: \ud83d"),), is_error=True),
    ToolMessage("c3", ()),
    ToolMessage("c4", (Text("\u2028 \U0001f600 </script>"),)),
    AssistantMessage((Reasoning("only thought"),)),
    AssistantMessage((Reasoning("mine", "anthropic:p"), Reasoning("", "anthropic-redacted:h"), Text("so"))),
    AssistantMessage(()),
    AssistantMessage((Text(""),)),
    UserMessage(MessageId("m3"), (Text("and?"),)),
)
KINDS = (
    Quirks(),
    Quirks(stream=False, images=False),
    Quirks(stream_usage=False, system_role="developer", max_tokens_field="max_completion_tokens"),
    Quirks(reasoning_field="reasoning"),
    Quirks(reasoning_field="reasoning_content", call_signatures=True),
)


def request(transcript: Transcript, *, bare: bool = False) -> ModelRequest:
    if bare:
        return ModelRequest(model="m", system="", tools=(), transcript=transcript)
    options = {"temperature": 0.5, "x": {"b": None, "a": [1, 1.0, True]}}
    return ModelRequest(
        model="m", system="Be\nbrief.", tools=(TOOL,), transcript=transcript, max_tokens=9, options=options
    )


def sample(encoder: Encoder) -> bytes:
    """Bodies of every prefix of the talk, with everything and with nothing beside it."""
    parts: list[bytes] = []
    for bare in (False, True):
        transcript = encoder.transcript()
        for message in TALK:
            transcript.extend([message])
            parts.extend(encoder.encode(request(transcript, bare=bare)))
    return b"\n".join(parts)


def test_a_version_of_the_chat_encoder_has_its_bytes_for_ever() -> None:
    digest = sha256(b"\n".join(sample(ChatEncoder("p", one)) for one in KINDS)).hexdigest()
    assert CHAT_BYTES.get(CHAT_VERSION) == digest, (
        "equal requests have other bytes than before: raise CHAT_VERSION, and add the new version's digest"
    )


def test_a_version_of_the_anthropic_encoder_has_its_bytes_for_ever() -> None:
    encoders = (AnthropicEncoder("p"), AnthropicEncoder("p", is_cached=False, output_ceiling=lambda model: 7))
    digest = sha256(b"\n".join(map(sample, encoders))).hexdigest()
    assert ANTHROPIC_BYTES.get(ANTHROPIC_VERSION) == digest, (
        "equal requests have other bytes than before: raise ANTHROPIC_VERSION, and add the new version's digest"
    )


@pytest.mark.parametrize(
    "first",
    [
        *(ChatEncoder(name, provider.quirks) for name, provider in sorted(PROVIDERS.items())),
        AnthropicEncoder("a", output_ceiling=PROVIDERS["anthropic"].output_ceiling),
        AnthropicEncoder("a", is_cached=False, output_ceiling=len),
    ],
)
def test_an_encoder_can_be_had_again_from_what_the_log_says(first: Encoder) -> None:
    second = encoder_again("p", first.encoding("m"))
    assert second is not None
    assert second.encoding("m") == first.encoding("m")
    assert sample(second) == sample(first)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"head"]), st.binary(max_size=9), st.binary(max_size=3))))
def test_the_running_digest_is_that_of_the_whole_body(steps: list[tuple[bytes, bytes, bytes]]) -> None:
    running, grown = RunningDigest(), b""
    for head, more, rest in steps:
        grown += more
        body = (head, grown, rest, b"!")
        assert running.of(body) == sent_of(body)
        assert running.of(body).digest == sha256(b"".join(body)).hexdigest()[:20]


def test_a_limit_of_tokens_is_set_in_one_place_alone() -> None:
    encoder = ChatEncoder("p", Quirks())
    made = ModelRequest(model="m", system="", tools=(), transcript=encoder.transcript(), options={"max_tokens": 3})
    with pytest.raises(ConfigError, match="'max_tokens' of 'p' is not free; set max_tokens instead"):
        encoder.encode(made)
