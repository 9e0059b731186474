//! Registering, checking, permitting and running calls.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use twopass_core::chat::ToolSpec;
use twopass_tools::{
    Consent, Decision, Effect, ErrorKind, FnTool, Limits, Policy, ToolContext, ToolError,
    ToolOutput, ToolRegistry, TypedTool, Workspace,
};

use crate::call;

/// Repeats a text a number of times. Use it to test the registry. It has no other use.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RepeatArgs {
    /// The text to repeat.
    text: String,
    /// How often.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 100_000))]
    times: u32,
    /// How it is written.
    #[serde(default)]
    case: Case,
}

fn once() -> u32 {
    1
}

#[derive(Deserialize, JsonSchema, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Case {
    #[default]
    Same,
    Upper,
}

struct Repeat;

impl TypedTool for Repeat {
    type Args = RepeatArgs;
    const NAME: &'static str = "repeat";
    const EFFECT: Effect = Effect::Reads;

    async fn run(&self, args: RepeatArgs, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let text = match args.case {
            Case::Same => args.text,
            Case::Upper => args.text.to_uppercase(),
        };
        Ok(text.repeat(args.times as usize).into())
    }
}

fn stub(name: &str, effect: Effect) -> Arc<FnTool> {
    let spec = ToolSpec {
        name: name.to_owned(),
        description: "Answers with its arguments.".to_owned(),
        parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
    };
    let answer = |arguments, _| async move { Ok(Value::Object(arguments).to_string().into()) };
    Arc::new(FnTool::new(spec, effect, answer))
}

fn context() -> ToolContext {
    ToolContext::new(Workspace::open(std::env::temp_dir()).unwrap())
}

async fn run(registry: &ToolRegistry, name: &str, arguments: &str) -> ToolOutput {
    crate::run(registry, &context(), name, arguments).await
}

/// One type gives description, schema and check.
#[tokio::test]
async fn i2_i11_b15_one_type_is_the_whole_definition() {
    let registry = ToolRegistry::new();
    registry.register(Repeat).unwrap();
    let specs = registry.specs();
    assert_eq!(
        specs[0].description,
        "Repeats a text a number of times. Use it to test the registry. It has no other use."
    );
    assert_eq!(
        specs[0].parameters,
        json!({
            "type": "object",
            "properties": {
                "text": {"description": "The text to repeat.", "type": "string"},
                "times": {
                    "description": "How often.",
                    "type": "integer", "default": 1, "minimum": 1, "maximum": 100_000
                },
                "case": {
                    "description": "How it is written.",
                    "type": "string", "default": "same", "enum": ["same", "upper"]
                },
            },
            "additionalProperties": false,
            "required": ["text"],
        })
    );
    assert_eq!(
        run(&registry, "repeat", r#"{"text": "ab"}"#).await.text,
        "ab"
    );
    // Coerced, as everywhere: models write numbers as strings.
    let output = run(
        &registry,
        "repeat",
        r#"{"text": "ab", "times": "2", "case": "upper"}"#,
    )
    .await;
    assert_eq!((output.text.as_str(), output.error), ("ABAB", None));
}

#[tokio::test]
async fn i11_bad_calls_are_results_that_say_what_is_wrong() {
    let registry = ToolRegistry::new();
    registry.register(Repeat).unwrap();
    let cases = [
        (
            "repeat",
            r#"{"text": "a", "often": 3}"#,
            ErrorKind::InvalidArguments,
            "often",
        ),
        (
            "repeat",
            r#"{"times": 3}"#,
            ErrorKind::InvalidArguments,
            "text",
        ),
        (
            "repeat",
            r#"{"text": "a", "times": 0}"#,
            ErrorKind::InvalidArguments,
            "/times",
        ),
        (
            "repeat",
            r#"{"text": "a", "times": "x"}"#,
            ErrorKind::InvalidArguments,
            "/times",
        ),
        (
            "repeat",
            r#"{"text": "a", "case": "lower"}"#,
            ErrorKind::InvalidArguments,
            "/case",
        ),
        (
            "repaet",
            r#"{"text": "a"}"#,
            ErrorKind::UnknownTool,
            "`repeat`",
        ),
    ];
    for (name, arguments, kind, word) in cases {
        let output = run(&registry, name, arguments).await;
        assert_eq!(output.error, Some(kind), "{arguments}");
        assert!(output.text.contains(word), "{arguments}: {}", output.text);
    }
}

#[tokio::test]
async fn i2_tools_come_and_go_at_run_time() {
    let registry = ToolRegistry::new();
    registry.add(stub("echo", Effect::Reads)).unwrap();
    assert_eq!(
        run(&registry, "echo", r#"{"n": 1}"#).await.text,
        r#"{"n":1}"#
    );
    let taken = registry.add(stub("echo", Effect::Reads)).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::BadName);
    for name in ["", "two words", "ünï", &"x".repeat(65)] {
        let error = registry.add(stub(name, Effect::Reads)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadName, "{name}");
    }
    assert!(registry.get("echo").is_some());
    assert!(registry.remove("echo") && !registry.remove("echo"));
    assert_eq!(
        run(&registry, "echo", "{}").await.error,
        Some(ErrorKind::UnknownTool)
    );
}

/// A tool without a description, or one that takes what it does not know, is not registered.
#[test]
fn h3_i11_careless_definitions_are_errors() {
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct NoDoc {}
    /// Takes whatever comes.
    #[derive(Deserialize, JsonSchema)]
    struct Open {}
    struct First;
    struct Second;
    impl TypedTool for First {
        type Args = NoDoc;
        const NAME: &'static str = "first";
        const EFFECT: Effect = Effect::Reads;
        async fn run(&self, _: NoDoc, _: &ToolContext) -> Result<ToolOutput, ToolError> {
            Ok(String::new().into())
        }
    }
    impl TypedTool for Second {
        type Args = Open;
        const NAME: &'static str = "second";
        const EFFECT: Effect = Effect::Reads;
        async fn run(&self, _: Open, _: &ToolContext) -> Result<ToolOutput, ToolError> {
            Ok(String::new().into())
        }
    }
    let registry = ToolRegistry::new();
    let error = registry.register(First).unwrap_err();
    assert!(error.to_string().contains("doc comment"), "{error}");
    let error = registry.register(Second).unwrap_err();
    assert!(error.to_string().contains("deny_unknown_fields"), "{error}");
}

#[tokio::test]
async fn policies_decide_and_consent_counts() {
    use Decision::{Ask, Refuse, Run};
    let table = [
        (Policy::Ask, [Run, Ask, Ask, Ask]),
        (Policy::Auto, [Run, Run, Run, Run]),
        (Policy::ReadOnly, [Run, Refuse, Refuse, Refuse]),
        (Policy::Never, [Refuse, Refuse, Refuse, Refuse]),
    ];
    let effects = [
        Effect::Reads,
        Effect::Writes,
        Effect::Executes,
        Effect::Network,
    ];
    for (policy, decisions) in table {
        assert_eq!(Policy::from_name(policy.as_str()), Some(policy));
        for (effect, expect) in effects.into_iter().zip(decisions) {
            let registry = ToolRegistry::new();
            registry.add(stub("tool", effect)).unwrap();
            registry.set_policy("tool", policy);
            assert_eq!(
                registry.decide("tool"),
                expect,
                "{policy} {}",
                effect.as_str()
            );
            for consent in [Consent::NotAsked, Consent::Given, Consent::Denied] {
                let output = registry.run(&call("tool", "{}"), &context(), consent).await;
                let may = match expect {
                    Run => consent != Consent::Denied,
                    Ask => consent == Consent::Given,
                    Refuse => false,
                };
                let error = (!may).then_some(ErrorKind::Refused);
                assert_eq!(
                    output.error,
                    error,
                    "{policy} {} {consent:?}",
                    effect.as_str()
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_breaks_or_floods_is_one_result() {
    let spec = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({}),
    };
    let limits = Limits {
        max_output_chars: 10,
        timeout: Duration::from_secs(5),
    };
    let registry = ToolRegistry::new();
    let hang = FnTool::new(spec("hang"), Effect::Reads, |_, _| std::future::pending());
    let panic = FnTool::new(spec("panic"), Effect::Reads, |_, _| async {
        panic!("broken")
    });
    let flood = FnTool::new(spec("flood"), Effect::Reads, |_, _| async {
        Ok(format!("head{}tail", "x".repeat(1000)).into())
    });
    for tool in [hang, panic, flood] {
        registry.add(Arc::new(tool)).unwrap();
    }
    let mut context = context();
    context.limits = limits;
    let run = async |name| {
        let call = call(name, "{}");
        registry.run(&call, &context, Consent::NotAsked).await
    };
    assert_eq!(run("hang").await.error, Some(ErrorKind::Timeout));
    assert_eq!(run("panic").await.error, Some(ErrorKind::Internal));
    let output = run("flood").await;
    assert!(output.truncated && !output.is_error());
    assert!(output.text.starts_with("head") && output.text.ends_with("tail"));
}

/// Everything that we describe to a model passes the lint, memory tools included.
#[tokio::test]
async fn h3_i1_i3_our_own_tools_are_described_well() {
    use twopass_tools::memory::Memory;
    use twopass_tools::working_memory::{Strategy, WorkingMemory};
    use twopass_tools::{Sandbox, base_registry, lint};

    let registry = base_registry(Sandbox::default(), &Memory::in_process(None).unwrap()).unwrap();
    let names: Vec<String> = registry.specs().into_iter().map(|spec| spec.name).collect();
    assert_eq!(
        names,
        [
            "read_file",
            "create_file",
            "edit_file",
            "list_directory",
            "search_codebase",
            "execute_bash",
            "recall_memory",
            "store_memory"
        ]
    );
    for strategy in Strategy::ALL {
        assert_eq!(Strategy::from_name(strategy.as_str()), Some(strategy));
        WorkingMemory::default()
            .register(&registry, strategy)
            .unwrap();
    }
    assert_eq!(registry.specs().len(), 14);
    for spec in registry.specs() {
        assert_eq!(lint(&spec), Vec::<String>::new(), "{}", spec.name);
    }
}
