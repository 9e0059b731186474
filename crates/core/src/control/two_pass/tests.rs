use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::chat::{ToolChoice, ToolSpec};
use crate::control::TurnSyntax;
use crate::reasoning_parser::ReasoningSyntax;
use crate::tool_parser::{CallRules, ToolSet, ToolSyntax};

/// What a scripted engine answers to one pass.
struct Answer {
    text: &'static str,
    stop: StopReason,
}

fn answer(text: &'static str, stop: StopReason) -> Answer {
    Answer { text, stop }
}

fn met(stop: &str) -> StopReason {
    StopReason::StopSequence(stop.to_owned())
}

fn plan(template_opens: bool) -> TurnPlan {
    let tool = ToolSpec {
        name: "write".to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
    };
    TurnPlan {
        budget: TurnBudget::TwoPass {
            tag: ThinkTag::Think,
            max_thinking_tokens: 256,
            max_response_tokens: 1024,
        },
        means: Means::Continuation,
        opened_by_template: template_opens.then_some(ThinkTag::Think),
        open_block: template_opens,
        closed_by_template: false,
        framing: ThinkFraming::bare(ThinkTag::Think),
        stop: vec!["Question:".to_owned()],
        call_stop: Some("</tool_call>".to_owned()),
        call_markers: None,
        only_calls: false,
        parser: TurnParserOptions {
            syntax: TurnSyntax::new(
                ReasoningSyntax::auto(),
                ToolSyntax::from_name("hermes").unwrap(),
            ),
            calls: CallRules {
                tools: Some(Arc::new(ToolSet::new([tool]))),
                choice: ToolChoice::Auto,
                ..CallRules::default()
            },
            ..TurnParserOptions::default()
        },
    }
}

/// Runs a turn against the script; every text comes in pieces of `chunk` bytes.
fn run_chunked(
    plan: TurnPlan,
    script: &[Answer],
    chunk: usize,
) -> (Reply, Vec<PassRequest>, Vec<Event>) {
    let mut turn = TwoPass::new(plan);
    let (mut sent, mut events) = (Vec::new(), Vec::new());
    loop {
        match turn.poll() {
            Step::Send(request) => sent.push(request),
            Step::Emit(event) => events.push(event),
            Step::Done(reply) => return (*reply, sent, events),
            Step::Read => {
                let answer = &script[sent.len() - 1];
                for piece in answer.text.as_bytes().chunks(chunk) {
                    turn.handle_text(std::str::from_utf8(piece).unwrap());
                }
                turn.handle_pass_end(PassEnd {
                    stop_reason: answer.stop.clone(),
                    usage: Usage {
                        prompt_tokens: 10,
                        response_tokens: 4,
                        ..Usage::default()
                    },
                    ..PassEnd::default()
                });
            }
        }
    }
}

fn run(plan: TurnPlan, script: &[Answer]) -> (Reply, Vec<PassRequest>) {
    let (reply, sent, _) = run_chunked(plan.clone(), script, usize::MAX);
    for chunk in [1, 2, 3, 7] {
        let (other, other_sent, _) = run_chunked(plan.clone(), script, chunk);
        assert_eq!(
            (&other, &other_sent),
            (&reply, &sent),
            "in chunks of {chunk}"
        );
    }
    (reply, sent)
}

// Rows D2, D4, D6, K2: two calls, each with its own cap; the closing tag is put back once.
#[test]
fn d2_d4_thought_closed_by_the_model() {
    let script = [
        answer("plan A", met("</think>")),
        answer("Answer", StopReason::EndTurn),
    ];
    let (reply, sent) = run(plan(true), &script);
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("plan A", "Answer")
    );
    assert!(!reply.reasoning_truncated);
    assert_eq!(reply.stop_reason, StopReason::EndTurn);
    assert_eq!(sent.len(), 2);
    assert_eq!(
        (sent[0].max_tokens, sent[0].continuation.as_str()),
        (Some(256), "")
    );
    assert_eq!(sent[0].stop, ["</think>", "</thinking>"]);
    assert_eq!(sent[1].continuation, "plan A</think>\n\n");
    assert_eq!(
        (sent[1].max_tokens, &sent[1].stop[0][..]),
        (Some(1024), "Question:")
    );
    assert_eq!(
        (reply.usage.thinking_tokens, reply.usage.response_tokens),
        (4, 4)
    );
}

// Rows C2, D3: the cap closes the thought.
#[test]
fn d3_cap_closes_the_thought() {
    let script = [
        answer("long", StopReason::Length),
        answer("Answer", StopReason::EndTurn),
    ];
    let (reply, sent) = run(plan(true), &script);
    assert!(reply.reasoning_truncated);
    assert_eq!(sent[1].continuation, "long</think>\n\n");
    assert_eq!(reply.reasoning, "long");
}

#[test]
fn d2_own_opening_tag_where_the_template_has_none() {
    let mut plan = plan(false);
    plan.open_block = true;
    let script = [
        answer("a", met("</think>")),
        answer("b", StopReason::EndTurn),
    ];
    let (reply, sent) = run(plan, &script);
    assert_eq!(sent[0].continuation, "<think>");
    assert_eq!(sent[1].continuation, "<think>a</think>\n\n");
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("a", "b")
    );
}

// Row D7: no tag and a normal end is one call; a cut answer goes on under its own cap.
#[test]
fn d7_no_thought_was_opened() {
    let (reply, sent) = run(plan(false), &[answer("Direct.", StopReason::EndTurn)]);
    assert_eq!((reply.content.as_str(), sent.len()), ("Direct.", 1));
    let script = [
        answer("The capital is", StopReason::Length),
        answer(" Oslo.", StopReason::EndTurn),
    ];
    let (reply, sent) = run(plan(false), &script);
    assert_eq!(reply.content, "The capital is Oslo.");
    assert_eq!(sent[1].continuation, "The capital is");
    assert!(!reply.reasoning_truncated);
}

// Row D13: an empty first pass still proceeds; so does a turn that ended in the thought.
#[test]
fn d13_empty_thought_and_early_end() {
    let script = [
        answer("", met("</think>")),
        answer("b", StopReason::EndTurn),
    ];
    let (reply, _) = run(plan(true), &script);
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("", "b")
    );
    let script = [
        answer("a", StopReason::EndTurn),
        answer("b", StopReason::EndTurn),
    ];
    let (reply, _) = run(plan(true), &script);
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("a", "b")
    );
    assert_eq!(reply.diagnostics[0].kind, DiagnosticKind::EndedInThought);
}

#[test]
fn d4_stray_close_at_the_head_of_pass_two() {
    let script = [
        answer("plan", StopReason::Length),
        answer("</think>\n\nFinal", StopReason::EndTurn),
    ];
    let (reply, _) = run(plan(true), &script);
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("plan", "Final")
    );
}

// Row E4: the marker is put back, and a call that holds it in a string goes on.
#[test]
fn e4_call_marker_inside_a_string() {
    let script = [
        answer("write it", met("</think>")),
        answer(
            "<tool_call>{\"name\":\"write\",\"arguments\":{\"text\":\"end with ",
            met("</tool_call>"),
        ),
        answer(" ok\"}}", met("</tool_call>")),
    ];
    let (reply, sent) = run(plan(true), &script);
    assert_eq!(sent.len(), 3);
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    assert_eq!(
        reply.tool_calls[0].arguments.as_object()["text"],
        "end with </tool_call> ok"
    );
}

// Row D14: a failed answer keeps the thought and never becomes an answer.
#[test]
fn d14_failed_second_pass_keeps_the_thought() {
    let mut turn = TwoPass::new(plan(true));
    assert!(matches!(turn.poll(), Step::Send(_)));
    turn.handle_text("plan");
    turn.handle_pass_end(PassEnd {
        stop_reason: met("</think>"),
        ..PassEnd::default()
    });
    let reply = loop {
        match turn.poll() {
            Step::Send(request) => {
                assert_eq!(request.name, "answer");
                turn.handle_failure("refused");
            }
            Step::Done(reply) => break reply,
            Step::Emit(_) | Step::Read => {}
        }
    };
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("plan", "")
    );
    assert!(
        reply
            .diagnostics
            .iter()
            .any(|d| d.kind == DiagnosticKind::PassFailed)
    );
}

// Row M3: with an engine's rule there is one send, and a budget of 0 needs no rule.
#[test]
fn m3_engine_rule_is_one_send() {
    let mut plan = plan(false);
    (plan.means, plan.open_block) = (Means::EngineRule, true);
    let script = [answer("a</think>\n\nb", StopReason::EndTurn)];
    let (reply, sent) = run(plan.clone(), &script);
    let rule = sent[0].thinking.as_ref().unwrap();
    assert_eq!(
        (rule.budget_tokens, rule.close_text.as_str()),
        (256, "</think>\n\n")
    );
    assert_eq!(
        (sent[0].continuation.as_str(), sent[0].max_tokens),
        ("<think>", Some(1024))
    );
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("a", "b")
    );
    plan.budget = TurnBudget::TwoPass {
        tag: ThinkTag::Thinking,
        max_thinking_tokens: 0,
        max_response_tokens: 8,
    };
    let (reply, sent) = run(plan, &[answer("b", StopReason::EndTurn)]);
    assert_eq!(
        (&sent[0].thinking, sent[0].continuation.as_str()),
        (&None, "<thinking></thinking>\n\n")
    );
    assert_eq!(
        (reply.reasoning.as_str(), reply.content.as_str()),
        ("", "b")
    );
}

// Rows E13, E15, M7: a call that the cap cut is no answer, and says so, wherever it was cut.
#[test]
fn e15_cut_calls_are_explained() {
    let whole =
        "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"a\"}}\n</tool_call>";
    for at in 1..whole.len() - "\n</tool_call>".len() {
        let mut plan = plan(true);
        (plan.only_calls, plan.call_stop) = (true, None);
        plan.parser.calls.choice = ToolChoice::Required;
        let cut: &'static str = &whole[..at];
        let script = [
            answer("a", met("</think>")),
            answer(cut, StopReason::Length),
        ];
        let (reply, _) = run(plan, &script);
        assert_eq!(reply.content, CUT_CALL_TEXT, "{cut}");
        assert_eq!(reply.invalid_tool_calls.len(), 1, "{cut}");
        assert!(reply.tool_calls.is_empty(), "{cut}");
    }
}

// Rows A10, D6: the caller's stop strings end the answer, never the thought.
#[test]
fn a_stop_string_in_the_thought_of_one_pass_is_put_back() {
    let mut one_pass = plan(true);
    one_pass.budget = TurnBudget::OnePass {
        max_tokens: Some(64),
    };
    let script = [
        answer("they ask ", met("Question:")),
        answer(
            " two and two</think>It is 4.\nQuestion: next",
            StopReason::EndTurn,
        ),
    ];
    for chunk in [1, 5, 200] {
        let (reply, sent, _) = run_chunked(one_pass.clone(), &script, chunk);
        assert_eq!(reply.reasoning, "they ask Question: two and two");
        assert_eq!(reply.content, "It is 4.");
        assert_eq!(reply.stop_reason, met("Question:"));
        let caps: Vec<_> = sent.iter().map(|pass| pass.max_tokens).collect();
        assert_eq!(caps, [Some(64), Some(60)]);
        assert!(sent[0].stop.contains(&"Question:".to_owned()));
        assert!(!sent[1].stop.contains(&"Question:".to_owned()));
    }
}

#[test]
fn a_cap_that_a_stop_in_the_thought_leaves_empty_ends_the_turn() {
    let mut one_pass = plan(true);
    one_pass.budget = TurnBudget::OnePass {
        max_tokens: Some(4),
    };
    let script = [answer("they ask ", met("Question:"))];
    let (reply, sent, _) = run_chunked(one_pass, &script, 3);
    assert_eq!((reply.stop_reason, sent.len()), (StopReason::Length, 1));
    assert_eq!(reply.reasoning, "they ask Question:");
}

#[test]
fn an_answer_ends_where_an_engine_wrote_on_over_a_stop_string() {
    let script = [
        answer("plan", met("</think>")),
        answer("Yes. Quest, Question: and more", StopReason::EndTurn),
    ];
    for chunk in [1, 4, 200] {
        let (reply, _, events) = run_chunked(plan(true), &script, chunk);
        assert_eq!(reply.content, "Yes. Quest,");
        let shown = events.iter().filter_map(|event| match event {
            Event::TextDelta(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(shown.collect::<String>(), "Yes. Quest, ");
    }
}
