//! Agents over real engines: in this process, and behind a real server of ours.
//! Rows B18, K3, L4.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use twopass_agent::{
    AgentEvent, AgentOptions, Conversation, EndReason, Kind, Outcome, Parts, trace,
};
use twopass_core::chat::{Message, Request, Role, ToolSpec};
use twopass_provider::backend::Embedded;
use twopass_provider::config::{Config, Environment, TwoPassMode};
use twopass_provider::{Provider, ProviderConfig, Service};
use twopass_server::{Server, ServerOptions, Shutdown};
use twopass_tools::working_memory::Strategy;
use twopass_tools::{Effect, FnTool, Policy, ToolContext, ToolOutput, ToolRegistry, Workspace};

use crate::run::shape_of;

/// Given texts instead of the model's own, by the request.
pub(crate) type Recital = fn(&Request) -> Option<String>;

pub(crate) fn embedded(variable: &str, recital: Option<Recital>) -> Provider {
    let path = std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`, which sets it"));
    let path = std::path::PathBuf::from(path);
    let mut config = ProviderConfig::embedded("local", &path.display().to_string());
    config.generation.two_pass = TwoPassMode::On;
    config.generation.max_thinking_tokens = Some(32);
    // Two threads on cores that others use as well are many times slower than one.
    config.engine.threads = Some(1);
    let mut backend = Embedded::new(&config, path).unwrap();
    if let Some(recital) = recital {
        backend = backend.reciting(recital);
    }
    Provider::new(config, Arc::new(backend))
}

/// A server over this provider, and its address.
pub(crate) async fn serve(provider: Provider) -> (String, JoinHandle<()>) {
    let options = ServerOptions {
        port: 0,
        ..ServerOptions::default()
    };
    let server = Server::bind(options, vec![provider]).await.unwrap();
    let url = format!("http://{}", server.local_addr());
    let task = tokio::spawn(async move { server.run(&Shutdown::new()).await });
    (url, task)
}

fn native(url: &str) -> Provider {
    let config = json!({"providers": [{
        "name": "native", "provider_backend": "vllm_native", "model_name": "local",
        "tool_parser": "hermes", "api_config": {"base_url": url},
        "generation_config": {"two_pass": true, "max_thinking_tokens": 32},
    }]});
    let config = Config::parse(&config.to_string(), "the test", Environment::of_pairs([])).unwrap();
    Provider::from_entry(&config, None).unwrap()
}

/// A run and its trace.
pub(crate) struct Played {
    pub(crate) outcome: Outcome,
    memory: String,
    pub(crate) lines: Vec<Value>,
}

impl Played {
    /// What is the same for every backend.
    fn shape(&self) -> Vec<Value> {
        let more = [
            "response",
            "stop_reason",
            "answer",
            "attempt",
            "error",
            "revision",
        ];
        shape_of(&self.lines, &more)
    }
}

pub(crate) async fn play(kind: Kind, parts: Parts, task: &str) -> Played {
    let mut conversation = Conversation::new(kind, parts).unwrap();
    let message = Message::text(Role::User, task);
    let mut turn = conversation.begin(message.clone());
    let mut lines = vec![trace::start_line(&conversation, task)];
    let mut outcome = None;
    while let Some(event) = turn.next().await {
        lines.extend(trace::event_line(&event));
        if let AgentEvent::Ended(ended) = event {
            outcome = Some(*ended);
        }
    }
    let outcome = outcome.unwrap();
    conversation.keep(message, &outcome);
    Played {
        memory: conversation
            .memory()
            .map_or(String::new(), |memory| memory.text()),
        lines: lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        outcome,
    }
}

/// What the scripted model says: it looks at the clock, notes it if it can, and answers.
fn script(request: &Request) -> Option<String> {
    let last = request.messages.last()?;
    let note = json!({"name": "append_in_memory", "arguments": {
        "section_title": "2. Facts and knowledge", "lines": ["It was noon."],
    }});
    if last.content_text().contains("Write the edits") {
        return Some(format!("One fact is new.</think>\n\n{note}"));
    }
    if last.role == Role::Tool {
        return Some("Now I know it.</think>\n\nIt is noon.".to_owned());
    }
    let can_note = request
        .tools
        .iter()
        .any(|tool| tool.name == "append_in_memory");
    let note = match can_note {
        true => format!("\n<tool_call>\n{note}\n</tool_call>"),
        false => String::new(),
    };
    let look = json!({"name": "clock", "arguments": {"zone": "UTC"}});
    Some(format!(
        "I look.</think>\n\n<tool_call>\n{look}\n</tool_call>{note}"
    ))
}

fn clock() -> ToolRegistry {
    let spec = ToolSpec {
        name: "clock".to_owned(),
        description: "Tells the time.".to_owned(),
        parameters: json!({
            "type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"],
        }),
    };
    let registry = ToolRegistry::new();
    let tool = FnTool::new(spec, Effect::Reads, |_, _| async {
        Ok(ToolOutput::text("12:00"))
    });
    registry.add(Arc::new(tool)).unwrap();
    registry.set_default_policy(Policy::Auto);
    registry
}

// Rows B18, K3: both agents are the same over Chat Completions, over `/generate` with Hermes
// calls and two passes, and over the engine itself.
#[tokio::test(flavor = "multi_thread")]
async fn k3_b18_agents_are_the_same_over_every_backend() {
    let local = embedded("TWOPASS_TEST_QWEN3", Some(script));
    let (url, serving) = serve(local.clone()).await;
    let service = Service::connect(&url, None, &Environment::of_pairs([]))
        .await
        .unwrap();
    let providers = [local, service.provider, native(&url)];
    let strategy = Strategy::AppendAndDelete;
    for kind in [Kind::React(strategy), Kind::Workflow(strategy)] {
        let mut shapes = Vec::new();
        for provider in &providers {
            let name = provider.name().to_owned();
            let parts = Parts {
                provider: provider.clone(),
                tools: Arc::new(clock()),
                context: ToolContext::new(Workspace::open(".").unwrap()),
                options: AgentOptions::default(),
            };
            let played = play(kind, parts, "What time is it?").await;
            let lines = format!("{name}: {:#?}", played.lines);
            assert_eq!(played.outcome.end, EndReason::Answer, "{lines}");
            assert_eq!(played.outcome.answer, "It is noon.", "{lines}");
            assert!(played.memory.contains("It was noon."), "{lines}");
            assert_eq!(played.lines[2]["thinking"], "I look.", "{lines}");
            shapes.push(played.shape());
        }
        for shape in &shapes[1..] {
            assert_eq!(shape[1..], shapes[0][1..], "{kind:?}");
        }
    }
    serving.abort();
}
