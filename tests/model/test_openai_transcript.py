"""What goes to a server in the OpenAI chat format, and that a growing conversation is encoded once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.base.ids import MessageId
from retinue.errors import BadInput, ConfigError
from retinue.model.adapters.openai_chat import openai_chat_client
from retinue.model.adapters.quirks import Quirks
from retinue.model.adapters.wire_client import WireClient
from retinue.model.client import ModelRequest, ToolSpec, Transcript
from retinue.model.content import AssistantMessage, Image, Message, Reasoning, Text, ToolCall, ToolMessage, UserMessage

PNG = Image("image/png", "aGk=")


def client(**quirks: Any) -> WireClient:
    return openai_chat_client(provider="test", base_url="http://127.0.0.1:9/v1", quirks=Quirks(**quirks))


def user(*content: Text | Image) -> UserMessage:
    return UserMessage(MessageId("m"), content)


def request(transcript: Transcript, **fields: Any) -> ModelRequest:
    return ModelRequest(**({"model": "m", "system": "", "tools": (), "transcript": transcript} | fields))


def body(of: WireClient, *messages: Message, **fields: Any) -> dict[str, Any]:
    transcript = of.transcript()
    transcript.extend(messages)
    return json.loads(b"".join(of.encode(request(transcript, **fields))))


def wire(*messages: Message, **quirks: Any) -> list[Any]:
    return body(client(**quirks), *messages)["messages"]


_TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=12)
_INPUT = st.lists(st.builds(Text, _TEXT) | st.just(PNG), max_size=3).map(tuple)
_BLOCKS = st.lists(
    st.builds(Text, _TEXT)
    | st.builds(Reasoning, _TEXT, st.none() | st.just("proof"))
    | st.builds(ToolCall, _TEXT, _TEXT, _TEXT | st.just('{"a": 1}')),
    max_size=4,
).map(tuple)
_MESSAGES = st.lists(
    st.builds(UserMessage, st.just(MessageId("m")), _INPUT)
    | st.builds(AssistantMessage, _BLOCKS)
    | st.builds(ToolMessage, _TEXT, _INPUT),
    max_size=8,
)


@given(messages=_MESSAGES, system=_TEXT, data=st.data())
def test_a_transcript_grown_in_steps_equals_one_made_at_once(
    messages: list[Message], system: str, data: st.DataObject
) -> None:
    of = client(reasoning_field="reasoning", call_signatures=True)
    grown, whole = of.transcript(), of.transcript()
    whole.extend(messages)
    left = messages
    while left:
        size = data.draw(st.integers(1, len(left)))
        grown.extend(left[:size])
        left = left[size:]
        if data.draw(st.booleans()):
            of.encode(request(grown, system=system))
    encoded = b"".join(of.encode(request(grown, system=system)))
    assert encoded == b"".join(of.encode(request(whole, system=system)))
    assert isinstance(json.loads(encoded)["messages"], list)


def test_what_was_sent_stays_a_prefix_of_what_is_sent_next() -> None:
    of = client()
    transcript = of.transcript()
    call = AssistantMessage((ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")))
    transcript.extend([user(Text("a")), call, ToolMessage("1", (PNG,)), ToolMessage("2", (PNG,))])
    first = b"".join(of.encode(request(transcript))).partition(b'],"stream"')[0]
    transcript.extend([AssistantMessage((Text("two dots"),)), user(Text("b"))])
    assert b"".join(of.encode(request(transcript))).startswith(first)


def test_a_single_text_is_sent_unchanged() -> None:
    assert wire(user(Text("a\n\n")))[0]["content"] == "a\n\n"


def test_text_blocks_do_not_run_into_each_other() -> None:
    assert wire(user(Text("lead"), Text("body\n"), Text("end")))[0]["content"] == "lead\nbody\nend"
    assert wire(ToolMessage("1", (Text("a"), Text("b"))))[0]["content"] == "a\nb"


def test_images_of_a_user_are_sent_as_data_urls() -> None:
    parts = wire(user(Text("see"), Text("this"), PNG, Text("!")))[0]["content"]
    assert parts == [
        {"type": "text", "text": "see\nthis"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "!"},
    ]


def test_images_of_results_follow_the_last_result_in_a_user_message() -> None:
    calls = AssistantMessage((ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}")))
    sent = wire(calls, ToolMessage("1", (Text("seen"), PNG)), ToolMessage("2", (PNG,)), user(Text("go")))
    assert [m["role"] for m in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == "seen\n[image/png image: in the next user message]"
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "text", "image_url"]
    assert sent[4]["content"] == "go"


def test_images_of_the_newest_results_are_in_the_body_already() -> None:
    sent = wire(AssistantMessage((ToolCall("1", "look", "{}"),)), ToolMessage("1", (PNG,)))
    assert [m["role"] for m in sent] == ["assistant", "tool", "user"]


def test_a_server_that_takes_no_images_gets_a_note() -> None:
    sent = wire(user(Text("see"), PNG), ToolMessage("1", (PNG,)), images=False)
    note = "[image/png image left out: this model takes text only]"
    assert [m["content"] for m in sent] == [f"see\n{note}", note]


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ('{"a": [1,  2]}', '{"a": [1,  2]}'),
        ("", "{}"),
        (" \n", "{}"),
        ("null", "{}"),
        ('{"a": ', '{"invalid_json":"{\\"a\\": "}'),
        ("[1]", '{"invalid_json":"[1]"}'),
        ("{} {}", '{"invalid_json":"{} {}"}'),
        ("[" * 100_000, '{"invalid_json":"' + "[" * 100_000 + '"}'),
        ('{"a":' * 100_000, '{"invalid_json":"' + '{\\"a\\":' * 100_000 + '"}'),
    ],
    ids=str,
)
def test_arguments_that_are_no_object_are_wrapped_in_one(raw: str, sent: str) -> None:
    message = wire(AssistantMessage((ToolCall("1", "f", raw),)))[0]
    assert message["content"] is None
    assert message["tool_calls"] == [{"id": "1", "type": "function", "function": {"name": "f", "arguments": sent}}]


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert wire(user(Text("a\ud83d\ude00b\ud800c")))[0]["content"] == "a😀b\ufffdc"


def test_messages_without_content_are_left_out() -> None:
    assert wire(AssistantMessage(()), user(), AssistantMessage((Reasoning("hm"),))) == []


def test_reasoning_goes_back_only_where_the_server_takes_it() -> None:
    message = AssistantMessage((Reasoning("hm"), Text("yes")))
    assert wire(message) == [{"role": "assistant", "content": "yes"}]
    assert wire(message, reasoning_field="reasoning") == [{"role": "assistant", "content": "yes", "reasoning": "hm"}]
    assert wire(AssistantMessage((Reasoning("hm"),)), reasoning_field="reasoning_content") == [
        {"role": "assistant", "content": "", "reasoning_content": "hm"}
    ]


def test_a_message_with_calls_carries_the_reasoning_field_even_when_it_is_empty() -> None:
    message = AssistantMessage((ToolCall("1", "f", "{}"),))
    assert wire(message, reasoning_field="reasoning_content")[0]["reasoning_content"] == ""


def test_a_thought_signature_goes_back_with_the_first_call() -> None:
    message = AssistantMessage((Reasoning("", "proof"), ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}")))
    first, second = wire(message, call_signatures=True)[0]["tool_calls"]
    assert first["extra_content"] == {"google": {"thought_signature": "proof"}}
    assert "extra_content" not in second
    assert "extra_content" not in wire(message)[0]["tool_calls"][0]


def test_the_body_holds_system_tools_limits_and_options() -> None:
    tool = ToolSpec(name="f", description="does f", parameters={"type": "object"})
    fields: dict[str, Any] = {"system": "be", "tools": (tool,), "max_tokens": 9, "options": {"temperature": 0.5}}
    assert body(client(), user(Text("a")), **fields) == {
        "model": "m",
        "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "a"}],
        "tools": [
            {"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}}}
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "temperature": 0.5,
    }


def test_quirks_rename_and_omit_fields() -> None:
    quirks = {"system_role": "developer", "max_tokens_field": "max_completion_tokens", "stream_usage": False}
    sent = body(client(**quirks), system="be", max_tokens=9)
    assert sent == {
        "model": "m",
        "messages": [{"role": "developer", "content": "be"}],
        "stream": True,
        "max_completion_tokens": 9,
    }
    assert body(client(stream=False)) == {"model": "m", "messages": [], "stream": False}


def test_other_tools_are_never_taken_for_those_sent_before() -> None:
    of = client()
    names: list[str] = []
    for i in range(600):
        tools = (ToolSpec(name=f"t{i}", description="", parameters={}),)
        names.append(body(of, tools=tools)["tools"][0]["function"]["name"])
    assert names == [f"t{i}" for i in range(600)]


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream"])
def test_an_option_may_not_replace_what_the_client_owns(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        body(client(), options={name: 1})


def test_a_foreign_transcript_is_refused() -> None:
    class Other:
        def extend(self, messages: object) -> None: ...

    with pytest.raises(BadInput, match="Other"):
        client().encode(request(Other()))
