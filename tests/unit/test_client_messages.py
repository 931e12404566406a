"""Messages in the shapes of providers: what becomes of each, and what is refused by its place."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import BaseModel

from noosphere.client import Blob, InvalidArgument, Message, ToolUse
from noosphere.client._message_shapes import messages_of, one_message_of
from noosphere.client._messages import to_message
from noosphere.v1 import session_service_pb2 as pb

PNG = base64.b64encode(b"\x89PNG").decode()


def read(given: Any) -> list[Message]:
    return [to_message(message) for message in messages_of(given, "message")]


class Function(BaseModel):
    name: str
    arguments: str


class Call(BaseModel):
    id: str
    type: str = "function"
    function: Function


class Reply(BaseModel):
    """As OpenAI's library returns it: fields that are not set are None."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    audio: Any = None
    function_call: Any = None
    tool_calls: list[Call] | None = None


SHAPES = {
    "a text of the user": ({"role": "user", "content": "hi"}, [Message("user", "hi")]),
    "a developer's instructions are the operator's": (
        {"role": "developer", "content": "be brief"},
        [Message("system", "be brief")],
    ),
    "a name": ({"role": "user", "name": "ann", "content": "hi"}, [Message("user", "hi", name="ann")]),
    "an id": ({"role": "user", "id": "m-1", "content": "hi"}, [Message("user", "hi", id="m-1")]),
    "one part is a text": ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, [Message("user", "hi")]),
    "parts": (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
        [Message("user", ("see", Blob("image/png", b"\x89PNG")))],
    ),
    "a sound": (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}]},
        [Message("user", (Blob("audio/wav", b"\x89PNG"),))],
    ),
    "OpenAI's calls of tools": (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}],
        },
        [Message("assistant", tool_calls=(ToolUse("c1", "f", '{"q": 1}'),))],
    ),
    "OpenAI's object": (
        Reply(content="so", tool_calls=[Call(id="c1", function=Function(name="f", arguments="{}"))]),
        [Message("assistant", "so", tool_calls=(ToolUse("c1", "f", "{}"),))],
    ),
    "a refusal is what was said": (Reply(refusal="I will not"), [Message("assistant", "I will not")]),
    "OpenAI's result of a tool": (
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        [Message("tool", "42", tool_call_id="c1")],
    ),
    "Anthropic's answer": (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": "ü"}},
            ],
        },
        [Message("assistant", "I look.", tool_calls=(ToolUse("t1", "f", '{"q":"ü"}'),))],
    ),
    "Anthropic's results come first, each on its own": (
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "42"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "43"}]},
                {"type": "text", "text": "and now?"},
            ],
        },
        [
            Message("tool", "42", tool_call_id="t1"),
            Message("tool", "43", tool_call_id="t2"),
            Message("user", "and now?"),
        ],
    ),
    "Anthropic's image": (
        {
            "role": "user",
            "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
        },
        [Message("user", (Blob("image/png", b"\x89PNG"),))],
    ),
    "our own": (
        Message("tool", ("a", Blob("x/y", b"1")), tool_call_id="c", name="f", id="i", turn=3),
        [Message("tool", ("a", Blob("x/y", b"1")), tool_call_id="c", name="f", id="i", turn=3)],
    ),
}


@pytest.mark.parametrize(("given", "wanted"), SHAPES.values(), ids=list(SHAPES))
def test_a_message_keeps_what_it_says(given: Any, wanted: list[Message]) -> None:
    assert read(given) == wanted


REFUSED = {
    "a bare text": ("hi", "message: 'hi' is str, no message such as {'role': 'user'"),
    "no role": ({"content": "hi"}, "message.role: None is not one of system, developer, user, assistant, tool"),
    "another role": ({"role": "function", "content": ""}, "message.role: 'function' is not one of"),
    "a role of ours that there is none of": (
        Message("critic"),  # type: ignore[arg-type]
        "message.role: 'critic' is not one of system, user, assistant, tool",
    ),
    "a whole answer": ({"choices": [{"message": {}}]}, "append its choices[0].message"),
    "a number": ({"role": "user", "content": 7}, "message.content: 7 is neither text nor several parts"),
    "a link": (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
        "message.content[0].image_url.url: 'https://example.org/a.png' is no data: URL in base64",
    ),
    "no base64": (
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "?"}}]},
        "message.content[0].input_audio.data: is not base64",
    ),
    "an unknown part": (
        {"role": "user", "content": ["a", {"type": "hologram"}]},
        "message.content[1].type: 'hologram' is not known",
    ),
    "a call of the old kind": (
        {"role": "assistant", "function_call": {"name": "f"}},
        "message.function_call: is not known",
    ),
    "a call of nothing": (
        {"role": "assistant", "tool_calls": [{"id": "c"}]},
        "message.tool_calls[0]: {'id': 'c'} is no call of a function",
    ),
    "arguments that are no text": (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"q": 1}}}]},
        "message.tool_calls[0].function.arguments: {'q': 1} is dict, not text",
    ),
    "an input that is no JSON": (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"q": {1}}}]},
        "message.content[0].input.q: set is not JSON",
    ),
    "a lone surrogate": (Message("user", "\ud800"), "message.content[0]: '\\ud800' contains a lone surrogate"),
    "bytes that are no blob": (
        Message("user", ("a", b"b")),  # type: ignore[arg-type]
        "message.content[1]: b'b' is bytes, not text",
    ),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_message_is_refused_by_its_place(given: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read(given)
    assert said in str(refused.value)


def test_a_commit_appends_one_message_at_a_time() -> None:
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "42"} for n in range(2)]
    with pytest.raises(InvalidArgument, match="append: holds 2 messages"):
        one_message_of({"role": "user", "content": results}, "append")
    assert one_message_of({"role": "user", "content": results[:1]}, "append").tool_call_id == "t0"


def test_the_text_of_a_message_is_its_texts() -> None:
    assert Message("user").parts == ()
    assert Message("user", ("a", Blob("x/y", b""), "b")).text == "a\nb"


def test_a_role_of_a_newer_server_is_no_instruction() -> None:
    assert to_message(pb.Message(role=77, parts=[pb.Part(text="obey")])).role == "user"  # type: ignore[arg-type]
