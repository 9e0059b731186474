//! Caps and modes as a table. Rows A5, A9, A10, B2, B16, M10, X1, X18.

use twopass_core::chat::{
    Message, ResponseFormat, Role, ThinkTag, ToolChoice, ToolSpec, TurnBudget,
};
use twopass_provider::config::{BackendKind, ProviderConfig, TwoPassMode};
use twopass_provider::plan::{CallOptions, Thinking, plan_budget, plan_request};

/// `backend, two_pass, config caps (total, thinking, response), call caps (same), thinking,
/// call two_pass, tools` give the budget: `one N` or `THINKING+RESPONSE`.
#[test]
fn a5_b2_x1_x18_budgets() {
    use BackendKind::{Embedded, OpenAi, VllmNative};
    use Thinking::{ByConfig, Off, On};
    use TwoPassMode::{Auto, Off as No, On as Yes};
    const NONE: [Option<u32>; 3] = [None; 3];
    type Row<'a> = (
        BackendKind,
        TwoPassMode,
        [Option<u32>; 3],
        [Option<u32>; 3],
        Thinking,
        Option<TwoPassMode>,
        bool,
        &'a str,
    );
    let rows: &[Row<'_>] = &[
        // Defaults: on where the backend continues exactly, single pass elsewhere.
        (
            Embedded, Auto, NONE, NONE, ByConfig, None, false, "256+1024",
        ),
        (
            VllmNative, Auto, NONE, NONE, ByConfig, None, false, "256+1024",
        ),
        (OpenAi, Auto, NONE, NONE, ByConfig, None, false, "one 1024"),
        (
            OpenAi,
            Auto,
            [Some(4096), None, None],
            NONE,
            ByConfig,
            None,
            false,
            "one 4096",
        ),
        // The facade without thinking is one pass, with thinking follows the mode.
        (Embedded, Auto, NONE, NONE, Off, None, false, "one 1024"),
        (Embedded, Yes, NONE, NONE, Off, Some(Yes), false, "one 1024"),
        (Embedded, Auto, NONE, NONE, On, None, false, "256+1024"),
        (OpenAi, Auto, NONE, NONE, On, None, false, "one 1024"),
        (OpenAi, Yes, NONE, NONE, On, None, false, "256+1024"),
        // A call's mode wins; auto in a call follows the configuration.
        (
            Embedded,
            No,
            NONE,
            NONE,
            ByConfig,
            Some(Yes),
            false,
            "256+1024",
        ),
        (
            Embedded,
            Yes,
            NONE,
            NONE,
            ByConfig,
            Some(No),
            false,
            "one 1024",
        ),
        (
            Embedded,
            No,
            NONE,
            NONE,
            ByConfig,
            Some(Auto),
            false,
            "one 1024",
        ),
        // On with a cap missing: 256, and max_tokens or 1024.
        (
            OpenAi,
            Yes,
            [Some(500), None, None],
            NONE,
            ByConfig,
            None,
            false,
            "256+500",
        ),
        (
            VllmNative,
            Auto,
            [Some(500), None, Some(99)],
            NONE,
            ByConfig,
            None,
            false,
            "256+99",
        ),
        // Call over configuration over default, thinking 0 included.
        (
            Embedded,
            Auto,
            [None, Some(64), Some(128)],
            NONE,
            ByConfig,
            None,
            false,
            "64+128",
        ),
        (
            Embedded,
            Auto,
            [None, Some(64), Some(128)],
            [None, Some(0), Some(9)],
            ByConfig,
            None,
            false,
            "0+9",
        ),
        (
            Embedded,
            No,
            [Some(300), None, None],
            [None, None, Some(9)],
            ByConfig,
            None,
            false,
            "one 9",
        ),
        (
            Embedded,
            No,
            [Some(300), None, None],
            [Some(50), None, Some(9)],
            ByConfig,
            None,
            false,
            "one 9",
        ),
        // Bound tools keep a chat service's single pass.
        (OpenAi, Yes, NONE, NONE, ByConfig, None, true, "one 1024"),
        (Embedded, Auto, NONE, NONE, ByConfig, None, true, "256+1024"),
        // A call's total is shared, the answer's reserve first.
        (
            Embedded,
            Auto,
            NONE,
            [Some(100), None, None],
            ByConfig,
            None,
            false,
            "50+50",
        ),
        (
            Embedded,
            Auto,
            NONE,
            [Some(2000), None, None],
            ByConfig,
            None,
            false,
            "256+1024",
        ),
        (
            Embedded,
            Auto,
            NONE,
            [Some(1), None, None],
            ByConfig,
            None,
            false,
            "0+1",
        ),
        (
            Embedded,
            Auto,
            NONE,
            [Some(3), None, None],
            ByConfig,
            None,
            false,
            "2+1",
        ),
        (
            Embedded,
            Auto,
            [None, Some(8), None],
            [Some(100), None, None],
            ByConfig,
            None,
            false,
            "8+92",
        ),
        (
            Embedded,
            Auto,
            [None, None, Some(10)],
            [Some(100), None, None],
            ByConfig,
            None,
            false,
            "90+10",
        ),
    ];
    for (idx, (backend, mode, caps, call, thinking, called, tools, expect)) in
        rows.iter().enumerate()
    {
        let mut config = ProviderConfig::with_defaults("p", *backend, "m");
        config.generation.two_pass = *mode;
        [
            config.generation.max_tokens,
            config.generation.max_thinking_tokens,
            config.generation.max_response_tokens,
        ] = *caps;
        let options = CallOptions {
            thinking: *thinking,
            two_pass: *called,
            max_tokens: call[0],
            max_thinking_tokens: call[1],
            max_response_tokens: call[2],
            tools: if *tools { vec![tool("f")] } else { Vec::new() },
            ..CallOptions::default()
        };
        let budget = match plan_budget(&config, &options).unwrap() {
            TurnBudget::OnePass { max_tokens } => format!("one {}", max_tokens.unwrap()),
            TurnBudget::TwoPass {
                max_thinking_tokens,
                max_response_tokens,
                ..
            } => {
                format!("{max_thinking_tokens}+{max_response_tokens}")
            }
        };
        assert_eq!(budget, *expect, "row {idx}");
        if let Some(total) = options.max_tokens
            && let TurnBudget::TwoPass {
                max_thinking_tokens,
                max_response_tokens,
                ..
            } = plan_budget(&config, &options).unwrap()
        {
            assert!(
                max_thinking_tokens + max_response_tokens <= total,
                "row {idx}: row M10"
            );
        }
    }
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    }
}

#[test]
fn x1_tools_with_two_passes_need_the_opt_in() {
    let mut config = ProviderConfig::with_defaults("p", BackendKind::OpenAi, "m");
    config.generation.two_pass = TwoPassMode::On;
    config.decisions.two_pass_with_tools = true;
    let options = CallOptions {
        tools: vec![tool("f")],
        ..CallOptions::default()
    };
    assert!(matches!(
        plan_budget(&config, &options),
        Ok(TurnBudget::TwoPass { .. })
    ));
}

#[test]
fn a5_values_of_the_call_win_and_faults_are_named() {
    let mut config = ProviderConfig::embedded("p", "m");
    config.generation.sampling.temperature = Some(0.3);
    config.generation.sampling.seed = Some(1);
    config.generation.stop = vec!["A".to_owned()];
    config.generation.template_kwargs =
        vec![("x".to_owned(), 1.into()), ("y".to_owned(), 2.into())];
    let options = CallOptions {
        think_tag: Some(ThinkTag::Thinking),
        sampling: twopass_core::chat::Sampling {
            seed: Some(2),
            ..Default::default()
        },
        template_kwargs: vec![("x".to_owned(), 3.into())],
        ..CallOptions::default()
    };
    let hello = vec![Message::text(Role::User, "Hi")];
    let request = plan_request(&config, hello.clone(), options).unwrap();
    assert_eq!(
        (request.sampling.temperature, request.sampling.seed),
        (Some(0.3), Some(2))
    );
    assert_eq!(request.stop, ["A"]);
    // Row M5: no stop string cuts what is demanded.
    for (tool_choice, response_format) in [
        (ToolChoice::Required, ResponseFormat::Text),
        (ToolChoice::Auto, ResponseFormat::JsonObject),
    ] {
        let options = CallOptions {
            tools: vec![tool("f")],
            tool_choice,
            response_format,
            stop: Some(vec!["}".to_owned()]),
            ..CallOptions::default()
        };
        let request = plan_request(&config, hello.clone(), options).unwrap();
        assert!(request.stop.is_empty(), "{:?}", request.stop);
    }
    assert_eq!(
        request.template_kwargs,
        [("y".to_owned(), 2.into()), ("x".to_owned(), 3.into())]
    );
    assert!(matches!(
        request.budget,
        TurnBudget::TwoPass {
            tag: ThinkTag::Thinking,
            ..
        }
    ));

    let zero = CallOptions {
        max_response_tokens: Some(0),
        ..CallOptions::default()
    };
    let fault = plan_request(&config, hello, zero).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "`max_response_tokens`: must be at least 1, got 0"
    );
}

// Section 6: raw think text is taken out of content, and the replay policy decides.
#[test]
fn g8_history_goes_back_by_the_replay_policy() {
    use twopass_provider::config::ReasoningReplay;
    let mut old = Message::text(Role::Assistant, "<think>one</think>\nA");
    let history = vec![
        Message::text(Role::User, "q"),
        old.clone(),
        Message::text(Role::User, "r"),
        {
            old = Message::text(Role::Assistant, "B");
            old.reasoning = Some("two".to_owned());
            old
        },
        Message::text(Role::User, "<think>mine</think> s"),
    ];
    for (replay, expect) in [
        (ReasoningReplay::None, [None, None]),
        (ReasoningReplay::KeepLast, [None, Some("two")]),
        (ReasoningReplay::Full, [Some("one"), Some("two")]),
    ] {
        let mut config = ProviderConfig::embedded("p", "m");
        config.reasoning_replay = Some(replay);
        let request = plan_request(&config, history.clone(), CallOptions::default()).unwrap();
        let reasoning: Vec<_> = [1, 3]
            .iter()
            .map(|idx| request.messages[*idx].reasoning.as_deref())
            .collect();
        assert_eq!(reasoning, expect);
        assert_eq!(request.messages[1].content_text(), "A");
        assert_eq!(
            request.messages[4].content_text(),
            "<think>mine</think> s",
            "a user's text is left alone"
        );
    }
}
