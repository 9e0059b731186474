//! Both sides of every format agree: what one writes the other reads back.

use proptest::prelude::*;
use serde_json::{Value, json};
use twopass_core::chat::{
    Arguments, BadRequest, Event, Media, MediaSource, Message, OpaqueItem, OpaqueKind, Part,
    Passthrough, Reply, Request, ResponseFormat, Role, Sampling, StopReason, ToolCall, ToolChoice,
    ToolSpec, TurnBudget, Usage,
};
use twopass_wire::facts::{
    MaxTokensField, ReasoningField, ReasoningReplay, RepeatPenaltyField, ThinkingField, WireFacts,
};
use twopass_wire::{
    DecodeContext, Encoded, ReplyMeta, Thinking, WireRequest, anthropic_messages, ollama_chat,
    openai_chat, openai_responses,
};

use crate::read::{Format, read_stream, read_whole};

const ALL: [Format; 4] = [
    Format::Chat,
    Format::Responses,
    Format::Anthropic,
    Format::Ollama,
];

fn facts(format: Format) -> WireFacts {
    let chat = WireFacts {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        top_k: true,
        min_p: true,
        repeat_penalty_field: Some(RepeatPenaltyField::RepetitionPenalty),
        reasoning_replay: ReasoningReplay::Full,
        reasoning_field: Some(ReasoningField::ReasoningContent),
        thinking: ThinkingField::ReasoningObject,
        ..WireFacts::CHAT
    };
    match format {
        Format::Chat => chat,
        Format::Responses => WireFacts::RESPONSES,
        Format::Anthropic => WireFacts {
            reasoning_replay: ReasoningReplay::Full,
            ..WireFacts::ANTHROPIC
        },
        Format::Ollama => WireFacts {
            reasoning_replay: ReasoningReplay::Full,
            ..WireFacts::OLLAMA
        },
    }
}

fn encode(format: Format, request: &WireRequest) -> Encoded {
    let facts = facts(format);
    let encoded = match format {
        Format::Chat => openai_chat::encode_request(request, &facts),
        Format::Responses => openai_responses::encode_request(request, &facts),
        Format::Anthropic => anthropic_messages::encode_request(request, &facts),
        Format::Ollama => ollama_chat::encode_request(request, &facts),
    };
    encoded.unwrap()
}

fn decode(format: Format, body: &[u8]) -> Result<WireRequest, BadRequest> {
    match format {
        Format::Chat => openai_chat::decode_request(body),
        Format::Responses => openai_responses::decode_request(body),
        Format::Anthropic => anthropic_messages::decode_request(body),
        Format::Ollama => ollama_chat::decode_request(body),
    }
}

fn encode_whole(format: Format, reply: &Reply, meta: &ReplyMeta) -> String {
    match format {
        Format::Chat => openai_chat::encode_reply(reply, meta),
        Format::Responses => openai_responses::encode_reply(reply, meta),
        Format::Anthropic => anthropic_messages::encode_reply(reply, meta, true),
        Format::Ollama => ollama_chat::encode_reply(reply, meta),
    }
}

fn encode_stream(format: Format, events: &[Event], reply: &Reply, meta: ReplyMeta) -> String {
    let mut out = String::new();
    macro_rules! write {
        ($encoder:expr) => {{
            let mut encoder = $encoder;
            for event in events {
                encoder.encode(event, &mut out);
            }
            encoder.encode_done(reply, &mut out);
        }};
    }
    match format {
        Format::Chat => write!(openai_chat::StreamEncoder::new(meta, true)),
        Format::Responses => write!(openai_responses::StreamEncoder::new(meta)),
        Format::Anthropic => write!(anthropic_messages::StreamEncoder::new(meta, true)),
        Format::Ollama => write!(ollama_chat::StreamEncoder::new(meta)),
    }
    out
}

fn text() -> impl Strategy<Value = String> {
    // Text with an end that is no white space: some wires refuse or trim it.
    "[a-zé\u{1F600}\"\\\\\n ]{0,12}[a-z.]"
}

fn arguments() -> impl Strategy<Value = Arguments> {
    prop_oneof![
        Just("{}".to_owned()),
        text().prop_map(|text| json!({"x": text, "n": [1, null, {"y": false}]}).to_string()),
        // Larger than 64 bits, and keys out of order: the text must survive.
        Just("{\"z\":123456789012345678901234567890,\"a\":1.50}".to_owned()),
    ]
    .prop_map(|text| Arguments::from_text(text).unwrap())
}

fn calls() -> impl Strategy<Value = Vec<(String, Arguments)>> {
    prop::collection::vec(("[a-z_]{1,8}", arguments()), 0..4)
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => text().prop_map(Part::Text),
        1 => Just(Part::Image(Media {
            media_type: Some("image/jpeg".to_owned()),
            ..Media::new(MediaSource::Base64("AAEC".to_owned()))
        })),
    ]
}

#[derive(Debug, Clone)]
struct Round {
    ask: Vec<Part>,
    reasoning: Option<String>,
    answer: String,
    calls: Vec<(String, Arguments)>,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = (
        prop::collection::vec(part(), 1..3),
        prop::option::of(text()),
        text(),
        calls(),
    );
    prop::collection::vec(
        round.prop_map(|(ask, reasoning, answer, calls)| Round {
            ask,
            reasoning,
            answer,
            calls,
        }),
        1..4,
    )
}

/// A history as it is when it needs no repair.
fn history(format: Format, system: Option<String>, rounds: &[Round]) -> Vec<Message> {
    let mut messages: Vec<Message> = system
        .into_iter()
        .map(|text| Message::text(Role::System, text))
        .collect();
    let mut n_calls = 0;
    for round in rounds {
        let has_media = round.ask.iter().any(|part| !matches!(part, Part::Text(_)));
        let ask = if has_media && format != Format::Ollama {
            round.ask.clone()
        } else {
            // Neighbouring texts are one text on most wires.
            let mut whole = Message::text(Role::User, "");
            whole.content.clone_from(&round.ask);
            let mut parts = vec![Part::Text(whole.content_text())];
            parts.extend(
                round
                    .ask
                    .iter()
                    .filter(|part| !matches!(part, Part::Text(_)))
                    .map(|_| Part::Image(Media::new(MediaSource::Base64("AAEC".to_owned())))),
            );
            parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
            parts
        };
        messages.push(Message {
            content: ask,
            ..Message::text(Role::User, "")
        });
        let mut turn = Message::text(Role::Assistant, round.answer.clone());
        let carries = matches!(format, Format::Chat | Format::Ollama);
        turn.reasoning = round.reasoning.clone().filter(|_| carries);
        let mut results = Vec::new();
        for (name, arguments) in &round.calls {
            n_calls += 1;
            let id = format!("call_{n_calls}");
            let mut result = Message::tool_result(id.clone(), format!("result {n_calls}"));
            result.name = (format == Format::Ollama).then(|| name.clone());
            results.push(result);
            turn.tool_calls.push(ToolCall {
                id,
                name: name.clone(),
                arguments: arguments.clone(),
            });
        }
        messages.push(turn);
        messages.extend(results);
    }
    messages.push(Message::text(Role::User, "last"));
    messages
}

fn sampling(format: Format) -> Sampling {
    let all = Sampling {
        temperature: Some(0.3),
        top_p: Some(0.95),
        top_k: Some(20),
        min_p: Some(0.05),
        seed: Some(u64::MAX),
        presence_penalty: Some(-0.5),
        frequency_penalty: Some(0.5),
        repeat_penalty: Some(1.1),
    };
    let few = Sampling {
        temperature: all.temperature,
        top_p: all.top_p,
        ..Sampling::default()
    };
    match format {
        Format::Chat | Format::Ollama => all,
        Format::Responses => few,
        Format::Anthropic => Sampling {
            top_k: all.top_k,
            ..few
        },
    }
}

fn tools() -> Vec<ToolSpec> {
    vec![ToolSpec {
        name: "get_time".to_owned(),
        description: "The time.".to_owned(),
        parameters: json!({"type": "object", "properties": {"tz": {"type": "string"}}}),
    }]
}

fn request(format: Format, messages: Vec<Message>, variant: u8) -> WireRequest {
    let schema = ResponseFormat::JsonSchema {
        name: "answer".to_owned(),
        schema: json!({"type": "object"}),
        strict: true,
    };
    let choice = match variant % 4 {
        0 => ToolChoice::Auto,
        1 => ToolChoice::None,
        2 => ToolChoice::Required,
        _ => ToolChoice::Named("get_time".to_owned()),
    };
    let mut wire = WireRequest::new(
        "openai/gpt-4.1:free",
        Request {
            tools: tools(),
            tool_choice: match format {
                Format::Ollama => ToolChoice::Auto,
                _ => choice,
            },
            parallel_tool_calls: variant.is_multiple_of(2)
                || format == Format::Ollama
                // Nothing to be said about calls that may not be made.
                || (format == Format::Anthropic && variant % 4 == 1),
            budget: TurnBudget::OnePass {
                max_tokens: Some(4096),
            },
            sampling: sampling(format),
            stop: match format {
                Format::Responses => Vec::new(),
                _ => vec!["END".to_owned()],
            },
            response_format: match (format, variant % 3) {
                (Format::Anthropic, _) | (_, 0) => ResponseFormat::Text,
                (_, 1) => ResponseFormat::JsonObject,
                _ => schema,
            },
            ..Request::new(messages)
        },
    );
    wire.stream = variant.is_multiple_of(2);
    wire.include_usage = format != Format::Chat || wire.stream;
    wire.thinking = match (format, variant % 3) {
        (_, 0) => Thinking::Default,
        (Format::Anthropic | Format::Ollama, 1) => Thinking::Off,
        (Format::Ollama, _) => Thinking::On,
        (Format::Anthropic, _) => Thinking::Off,
        (Format::Responses, _) => Thinking::Effort("high".to_owned()),
        (Format::Chat, 1) => Thinking::Budget(512),
        (Format::Chat, _) => Thinking::Effort("low".to_owned()),
    };
    if format == Format::Responses {
        wire.store = Some(true);
        wire.request.hosted_tools = vec![OpaqueItem::new(
            OpaqueKind::ResponsesTool,
            "{\"type\":\"web_search_preview\"}",
        )];
    }
    let fields = vec![("custom".to_owned(), "{\"a\":1.50}".to_owned())];
    wire.request.passthrough = Passthrough::of(format.wire_format(), fields);
    wire
}

fn assert_same(format: Format, sent: &WireRequest, read: &WireRequest) {
    assert_eq!(read.request.messages, sent.request.messages, "{format:?}");
    for (read, sent) in read.request.messages.iter().zip(&sent.request.messages) {
        for (read, sent) in read.tool_calls.iter().zip(&sent.tool_calls) {
            assert_eq!(read.arguments.as_text(), sent.arguments.as_text());
        }
    }
    assert_eq!(read, sent, "{format:?}");
}

fn reply(reasoning: String, answer: String, calls: Vec<(String, Arguments)>, stop: u8) -> Reply {
    let tool_calls: Vec<_> = calls
        .into_iter()
        .enumerate()
        .map(|(n, (name, arguments))| ToolCall {
            id: format!("c{n}"),
            name,
            arguments,
        })
        .collect();
    let stop_reason = match (stop % 2, tool_calls.is_empty()) {
        (0, true) => StopReason::EndTurn,
        (0, false) => StopReason::ToolCalls,
        _ => StopReason::Length,
    };
    Reply {
        content: answer,
        reasoning,
        tool_calls,
        stop_reason,
        usage: Usage {
            prompt_tokens: 40,
            thinking_tokens: 0,
            response_tokens: 7,
            cached_tokens: 0,
        },
        ..Reply::default()
    }
}

/// The events of a reply, calls in pieces and overlapping as chat streams have them.
fn events(reply: &Reply) -> Vec<Event> {
    let mut out = Vec::new();
    for piece in halves(&reply.reasoning) {
        out.push(Event::ReasoningDelta(piece));
    }
    for piece in halves(&reply.content) {
        out.push(Event::TextDelta(piece));
    }
    for (call_idx, call) in reply.tool_calls.iter().enumerate() {
        out.push(Event::CallStarted {
            call_idx,
            id: call.id.clone(),
            name: call.name.clone(),
        });
    }
    for (call_idx, call) in reply.tool_calls.iter().enumerate().rev() {
        for text in halves(call.arguments.as_text()) {
            out.push(Event::ArgumentsDelta { call_idx, text });
        }
    }
    for (call_idx, call) in reply.tool_calls.iter().cloned().enumerate() {
        out.push(Event::CallFinished { call_idx, call });
    }
    out
}

fn halves(text: &str) -> Vec<String> {
    let middle = text.len() / 2;
    let at = (middle..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap();
    let (head, tail) = text.split_at(at);
    let pieces = [head, tail].into_iter();
    pieces
        .filter(|piece| !piece.is_empty())
        .map(str::to_owned)
        .collect()
}

fn assert_reply(format: Format, sent: &Reply, read: &Reply) {
    assert_eq!(read.content, sent.content, "{format:?}");
    assert_eq!(read.reasoning, sent.reasoning, "{format:?}");
    assert_eq!(read.tool_calls, sent.tool_calls, "{format:?}");
    for (read, sent) in read.tool_calls.iter().zip(&sent.tool_calls) {
        assert_eq!(read.arguments.as_text(), sent.arguments.as_text());
    }
    assert_eq!(read.stop_reason, sent.stop_reason, "{format:?}");
    assert_eq!(read.usage, sent.usage, "{format:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    // Rows H1-H9, J3-J9, J11, L13.
    #[test]
    fn requests_are_read_back(
        system in prop::option::of(text()),
        rounds in rounds(),
        variant in 0_u8..24,
    ) {
        for format in ALL {
            let sent = request(format, history(format, system.clone(), &rounds), variant);
            let encoded = encode(format, &sent);
            let read = decode(format, encoded.body.as_bytes()).unwrap();
            assert_same(format, &sent, &read);
        }
    }

    // Rows G1, H4, H5, H11, M1.
    #[test]
    fn replies_are_read_back(
        reasoning in prop_oneof![Just(String::new()), text()],
        answer in prop_oneof![Just(String::new()), text()],
        calls in calls(),
        stop in 0_u8..2,
    ) {
        for format in ALL {
            let sent = reply(reasoning.clone(), answer.clone(), calls.clone(), stop);
            let meta = ReplyMeta { id: "resp_1".to_owned(), created_s: 1, model: "m".to_owned(), ..ReplyMeta::default() };
            let whole = encode_whole(format, &sent, &meta);
            let read = read_whole(format, whole.as_bytes(), DecodeContext::default());
            assert_reply(format, &sent, &read.reply.unwrap());
            let stream = encode_stream(format, &events(&sent), &sent, meta);
            let read = read_stream(format, [stream.as_bytes()], DecodeContext::default());
            assert_reply(format, &sent, &read.reply.unwrap());
        }
    }

    // Nothing that comes in makes a reader panic.
    #[test]
    fn garbage_is_a_fault(body in prop_oneof![
        "\\PC{0,40}",
        "[\\[{\"a-z:,}\\] 0-9]{0,40}",
        prop::sample::select(vec![
            r#"{"choices":[{"delta":{"tool_calls":[{"index":"x","function":7}]}}]}"#,
            r#"{"choices":7}"#, r#"{"choices":[null,1,{"delta":[]}]}"#,
            r#"{"content":[1,{"type":7}],"stop_reason":{}}"#,
            r#"{"output":[[],{"type":"reasoning","summary":{}}]}"#,
            r#"{"type":"content_block_delta","index":-1,"delta":{"type":"input_json_delta"}}"#,
            r#"{"message":{"tool_calls":{"function":[]}},"done":"yes"}"#,
            r#"{"error":[]}"#, r#"{"error":false}"#, r#"{"messages":[{}]}"#, r#"{"input":[{}]}"#,
        ]).prop_map(str::to_owned),
    ]) {
        for format in ALL {
            let _ = read_whole(format, body.as_bytes(), DecodeContext::default());
            let stream = format!("data: {body}\n\n");
            let _ = read_stream(format, [stream.as_bytes()], DecodeContext::default());
            let _ = read_stream(format, [body.as_bytes()], DecodeContext::default());
            let _ = decode(format, body.as_bytes());
        }
    }
}

#[test]
fn request_bodies_are_valid_json_with_their_fields() {
    let rounds = [Round {
        ask: vec![Part::Text("hi".to_owned())],
        reasoning: Some("hm".to_owned()),
        answer: "yes".to_owned(),
        calls: vec![("f".to_owned(), Arguments::from_text("{}").unwrap())],
    }];
    for format in ALL {
        let sent = request(format, history(format, None, &rounds), 2);
        let body: Value = serde_json::from_str(&encode(format, &sent).body).unwrap();
        assert_eq!(body["model"], "openai/gpt-4.1:free", "{format:?}");
        assert_eq!(body["custom"], json!({"a": 1.5}), "{format:?}");
    }
}
