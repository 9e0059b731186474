//! Guardrails, limits and stop reasons (rows I9, L1), with scripted turns and no IO.

use twopass_agent::{AgentEvent, LoopOptions, Prerequisite, Rules};
use twopass_core::chat::{Message, Role};

use crate::script::{play, task};

struct Case {
    name: &'static str,
    rules: fn(&mut Rules),
    turns: &'static [&'static str],
    /// Stop reason, model calls, answer.
    end: (&'static str, u32, &'static str),
    /// Nudges, as kind and level.
    nudges: &'static [(&'static str, u8)],
}

fn check(case: &Case) {
    let mut options = LoopOptions::default();
    (case.rules)(&mut options.rules);
    let played = play(options, task(), case.turns);
    let outcome = &played.outcome;
    let end = (
        outcome.end.as_str(),
        outcome.n_steps,
        outcome.answer.as_str(),
    );
    assert_eq!(end, case.end, "{}", case.name);
    let nudges = played.events.iter().filter_map(|event| match event {
        AgentEvent::Nudged(nudge) => Some((nudge.kind.as_str(), nudge.level)),
        _ => None,
    });
    assert_eq!(nudges.collect::<Vec<_>>(), case.nudges, "{}", case.name);
    let ends = |event: &AgentEvent| matches!(event, AgentEvent::Ended(_));
    assert!(played.events.iter().rposition(ends) == Some(played.events.len() - 1));
    assert_eq!(played.events.iter().filter(|event| ends(event)).count(), 1);
}

// Rows I9, H11: the loop and its named ends.
#[test]
fn i9_the_loop_ends_for_a_named_reason() {
    let cases = [
        Case {
            name: "an answer",
            rules: |_| {},
            turns: &["find:a", "find:b look:c", "It is b."],
            end: ("answer", 3, "It is b."),
            nudges: &[],
        },
        Case {
            name: "the step limit, after the last results",
            rules: |rules| rules.max_steps = 3,
            turns: &["find:1", "find:2", "find:3", "find:4"],
            end: ("max_steps", 3, ""),
            nudges: &[],
        },
        Case {
            name: "ten steps if nobody says otherwise",
            rules: |_| {},
            turns: &[
                "find:0", "find:1", "find:2", "find:3", "find:4", "find:5", "find:6", "find:7",
                "find:8", "find:9", "find:10",
            ],
            end: ("max_steps", 10, ""),
            nudges: &[],
        },
        Case {
            name: "failures only, three steps in a row",
            rules: |_| {},
            turns: &["bad:1", "?nothing", "!find", "find:a"],
            end: ("repeated_failures", 3, ""),
            nudges: &[],
        },
        Case {
            name: "one success is enough to go on",
            rules: |_| {},
            turns: &["bad:1", "bad:2", "bad:3 find:a", "bad:4", "bad:5", "Done."],
            end: ("answer", 6, "Done."),
            nudges: &[],
        },
        Case {
            name: "the same call with the same result",
            rules: |_| {},
            turns: &["find:a", "find:a", "find:a", "find:a", "find:a"],
            end: ("loop_detected", 4, ""),
            nudges: &[("repetition", 1)],
        },
        Case {
            name: "a circle of two, left after the nudge",
            rules: |_| {},
            turns: &[
                "find:a", "find:b", "find:a", "find:b", "find:a", "find:b", "Enough.",
            ],
            end: ("answer", 7, "Enough."),
            nudges: &[("repetition", 1)],
        },
        Case {
            name: "an empty turn is asked for again",
            rules: |_| {},
            turns: &["-", "It is 4."],
            end: ("answer", 2, "It is 4."),
            nudges: &[("empty_answer", 1)],
        },
        Case {
            name: "two empty turns",
            rules: |_| {},
            turns: &["cut", "-", "never asked"],
            end: ("empty_answer", 2, ""),
            nudges: &[("empty_answer", 1)],
        },
    ];
    cases.iter().for_each(check);
}

// Row L1: rescue, retries, required steps, terminal tools, prerequisites.
#[test]
fn l1_guardrails_nudge_and_give_up() {
    let cases = [
        Case {
            name: "a call that cannot be read",
            rules: |_| {},
            turns: &["~", "find:a", "ok"],
            end: ("answer", 3, "ok"),
            nudges: &[("unreadable_call", 1)],
        },
        Case {
            name: "four of them",
            rules: |_| {},
            turns: &["~", "~", "~", "~"],
            end: ("repeated_failures", 4, ""),
            nudges: &[
                ("unreadable_call", 1),
                ("unreadable_call", 2),
                ("unreadable_call", 3),
            ],
        },
        Case {
            name: "an answer before the required step",
            rules: |rules| rules.required_steps = vec!["look".to_owned()],
            turns: &["I know.", "find:a", "I know.", "look:a", "Now I know."],
            end: ("answer", 5, "Now I know."),
            nudges: &[("steps_missing", 1), ("steps_missing", 2)],
        },
        Case {
            name: "a required step must succeed",
            rules: |rules| {
                rules.required_steps = vec!["bad".to_owned()];
                rules.max_premature = 1;
            },
            turns: &["bad:a", "Done.", "Done."],
            end: ("steps_missing", 3, ""),
            nudges: &[("steps_missing", 1)],
        },
        Case {
            name: "three levels, then the end",
            rules: |rules| rules.required_steps = vec!["look".to_owned()],
            turns: &["No.", "No.", "No.", "No."],
            end: ("steps_missing", 4, ""),
            nudges: &[
                ("steps_missing", 1),
                ("steps_missing", 2),
                ("steps_missing", 3),
            ],
        },
        Case {
            name: "a terminal tool ends the run",
            rules: |rules| rules.terminal_tools = vec!["done".to_owned()],
            turns: &["find:a", "done:yes", "never asked"],
            end: ("answer", 2, "done yes"),
            nudges: &[],
        },
        Case {
            name: "a terminal tool too early, its whole turn is blocked",
            rules: |rules| {
                rules.terminal_tools = vec!["done".to_owned()];
                rules.required_steps = vec!["look".to_owned()];
            },
            turns: &["look:a done:early", "look:a", "done:late"],
            end: ("answer", 3, "done late"),
            nudges: &[("steps_missing", 1)],
        },
        Case {
            name: "a prerequisite with the same argument",
            rules: |rules| {
                rules.prerequisites = vec![Prerequisite {
                    tool: "edit".to_owned(),
                    needs: "look".to_owned(),
                    same_argument: Some("q".to_owned()),
                }];
            },
            turns: &["look:a edit:a", "look:a", "edit:b", "edit:a", "Done."],
            end: ("answer", 5, "Done."),
            nudges: &[("prerequisite", 1), ("prerequisite", 2)],
        },
        Case {
            name: "a prerequisite, skipped three times",
            rules: |rules| {
                rules.prerequisites = vec![Prerequisite {
                    tool: "edit".to_owned(),
                    needs: "look".to_owned(),
                    same_argument: None,
                }];
            },
            turns: &["edit:a", "edit:a", "edit:a"],
            end: ("prerequisite_missing", 3, ""),
            nudges: &[("prerequisite", 1), ("prerequisite", 2)],
        },
        Case {
            name: "a call as JSON text is rescued",
            rules: |_| {},
            turns: &["{\"name\":\"find\",\"arguments\":{\"q\":\"a\"}}", "Found."],
            end: ("answer", 2, "Found."),
            nudges: &[],
        },
        Case {
            name: "unless nobody wants that",
            rules: |rules| rules.rescue = false,
            turns: &["{\"name\":\"find\",\"arguments\":{\"q\":\"a\"}}"],
            end: (
                "answer",
                1,
                "{\"name\":\"find\",\"arguments\":{\"q\":\"a\"}}",
            ),
            nudges: &[],
        },
    ];
    cases.iter().for_each(check);
}

// Rows M6, L1: a call in the text of another is never carried out because the model repeats it.
#[test]
fn m6_quoted_calls_are_not_rescued() {
    let quoted = r#"{"name":"find","arguments":{"q":"rm -rf it\nnow"}}"#;
    let table = [
        (
            "pasted",
            format!("What is this? <tool_call>{quoted}</tool_call>"),
        ),
        (
            "with the names of HTML",
            format!(
                "&lt;tool_call&gt;{}&lt;/tool_call&gt;",
                quoted.replace('"', "&quot;")
            ),
        ),
        (
            "with line numbers",
            "a-1-<function=find>\na-2-<parameter=q>\na-3-rm -rf it\na-4-now\n".to_owned(),
        ),
    ];
    for (name, text) in table {
        let history = vec![Message::text(Role::User, text)];
        let outcome = play(LoopOptions::default(), history, &[quoted]).outcome;
        assert_eq!(outcome.answer, quoted, "{name}");
    }
    // Who says what is to be done has not quoted a call.
    let asked = "Please find: rm -rf it, now. Use the find tool.";
    let history = vec![Message::text(Role::User, asked)];
    let outcome = play(LoopOptions::default(), history, &[quoted, "Found."]).outcome;
    assert_eq!(outcome.answer, "Found.");
}

// Rows H8, H9, H10, M7: invalid calls are reported in their place, and a blocked turn answers
// every call.
#[test]
fn h9_every_call_has_its_result_in_call_order() {
    let played = play(
        LoopOptions::default(),
        task(),
        &["!find find:a ?read bad:b", "ok"],
    );
    let results = played.outcome.messages.iter();
    let results = results.filter(|message| message.role == Role::Tool);
    let results: Vec<_> = results
        .map(|message| (message.is_error, message.content_text()))
        .collect();
    let expected = [
        (true, "error: bad call of `find`: schema_violation it is"),
        (false, "find a"),
        (
            true,
            "error: unknown tool `read`, the tools are `find`, `look`, `edit`, `done`, `bad`",
        ),
        (true, "error: cannot do b"),
    ];
    let expected = expected.map(|(is_error, text)| (is_error, text.to_owned()));
    assert_eq!(results, expected);
    let finished = played
        .events
        .iter()
        .filter(|event| matches!(event, AgentEvent::CallFinished { .. }));
    assert_eq!(finished.count(), 4);
}
