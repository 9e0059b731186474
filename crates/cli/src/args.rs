//! The table of commands and flags, as they are written.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use twopass_provider::Thinking;
use twopass_provider::config::KeyEntry;

/// Thinking budgets, private reasoning and typed tool calls for any language model.
#[derive(Debug, Parser)]
#[command(name = "twopass", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Shared {
    /// The configuration file [default: $TWOPASS_CONFIG, ./twopass.yaml, the user's]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one turn
    Invoke(InvokeArgs),
    /// Serve over HTTP
    Serve(ServeArgs),
    /// Read model text on stdin: thinking, content and calls as JSON
    Parse(ParseArgs),
    /// Print the prompt that a model would see
    Render(RenderArgs),
    /// Talk with a model that has tools
    Chat(ChatArgs),
    /// Let a model with tools work on a task until it has an answer
    Agent(AgentArgs),
    /// Print the tools of agents, in the form of any wire
    Tools(ToolsArgs),
    /// Measure a provider: first token, tokens per second, budgets
    Bench(BenchArgs),
    /// Find the thinking budget that a set of questions needs
    Sweep(SweepArgs),
    /// Print the vector of each line of stdin
    Embed(EmbedArgs),
    /// List and make the keys of the server
    Keys(KeysArgs),
    /// List, fetch and inspect local models
    Models(ModelsArgs),
    /// Check or show the configuration
    Config(ConfigArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InvokeArgs {
    /// The configured provider to ask
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Its model, instead of the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// A JSON file with the conversation; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) messages: Option<PathBuf>,
    /// A JSON file with the tools: name, description and parameters of each
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Let the model think
    #[arg(long, conflicts_with = "no_thinking")]
    pub(crate) thinking: bool,
    /// Do not let the model think
    #[arg(long)]
    pub(crate) no_thinking: bool,
    /// Most tokens of the thought, 0 or more
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_0)]
    pub(crate) max_thinking_tokens: Option<u32>,
    /// Most tokens of the answer, 1 or more
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_1)]
    pub(crate) max_response_tokens: Option<u32>,
    /// Think and answer in two passes
    #[arg(long, value_name = "MODE")]
    pub(crate) two_pass: Option<TwoPassArg>,
    /// The tag of the thought
    #[arg(long, value_name = "TAG")]
    pub(crate) think_tag: Option<ThinkTagArg>,
    /// auto, none, required, or the name of the tool to call
    #[arg(long, value_name = "CHOICE")]
    pub(crate) tool_choice: Option<String>,
    /// Print the answer while it is written
    #[arg(long)]
    pub(crate) stream: bool,
    /// Same seed, same answer
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    pub(crate) seed: Option<u64>,
    /// Randomness, 0 = none
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(crate) temperature: Option<f32>,
    /// The question; without it and --messages stdin is read
    pub(crate) prompt: Option<String>,
}

/// What `--thinking` and `--no-thinking` ask for.
pub(crate) fn thinking(on: bool, off: bool) -> Thinking {
    match (on, off) {
        (true, _) => Thinking::On,
        (false, true) => Thinking::Off,
        (false, false) => Thinking::ByConfig,
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TwoPassArg {
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ThinkTagArg {
    Think,
    Thinking,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ServeArgs {
    /// The address to listen on
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The port; 0 takes a free one
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = port)]
    pub(crate) port: Option<u16>,
    /// Serve this configured provider only
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Its model, instead of the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Ask for one of the keys in this file [default: `server.keys_file` of the configuration]
    #[arg(long, value_name = "FILE")]
    pub(crate) keys_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ParseArgs {
    /// The dialect of the calls: a name of --list, `auto`, or several joined by `+`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) dialect: String,
    /// The dialect of the reasoning [default: the one that belongs to --dialect]
    #[arg(long, value_name = "NAME")]
    pub(crate) reasoning: Option<String>,
    /// A JSON file with the tools; without it every call passes
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// auto, none, required, or the name of the tool to call
    #[arg(long, value_name = "CHOICE")]
    pub(crate) tool_choice: Option<String>,
    /// The prompt ended inside the think block
    #[arg(long)]
    pub(crate) prompt_opened: bool,
    /// Hand the text over in pieces of this many bytes [default: whole]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_1)]
    pub(crate) chunk_bytes: Option<u32>,
    /// Why the text ended
    #[arg(long, value_name = "REASON", default_value = "stop")]
    pub(crate) finish_reason: FinishReasonArg,
    /// List the dialects instead
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum FinishReasonArg {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
    Cancelled,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RenderArgs {
    /// The configured provider whose model is meant
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// A model's name or .gguf file
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["provider", "template"])]
    pub(crate) model: Option<String>,
    /// A file with a Jinja chat template
    #[arg(long, value_name = "FILE", conflicts_with = "provider")]
    pub(crate) template: Option<PathBuf>,
    /// A JSON file with the conversation; `-` reads stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) messages: Option<PathBuf>,
    /// A JSON file with the tools
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// As for a turn that may think
    #[arg(long, conflicts_with = "no_thinking")]
    pub(crate) thinking: bool,
    /// As for a turn that may not think
    #[arg(long)]
    pub(crate) no_thinking: bool,
    /// The question; without it and --messages stdin is read
    pub(crate) prompt: Option<String>,
}

/// What an agent is made of.
#[derive(Debug, ClapArgs)]
pub(crate) struct AgentFlags {
    /// The configured provider to ask
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Its model, instead of the configured one; with --server one of the server's
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Ask the Chat Completions server at this address; its key, if any, is $TWOPASS_API_KEY
    #[arg(long, value_name = "URL", conflicts_with = "provider")]
    pub(crate) server: Option<String>,
    /// How it works
    #[arg(long, value_name = "KIND", default_value = "vanilla")]
    pub(crate) kind: AgentKindArg,
    /// How a react or workflow agent edits its working memory
    #[arg(long, value_name = "STRATEGY", default_value = "append_and_delete")]
    pub(crate) memory: MemoryStrategyArg,
    /// Only these tools, separated by commas; `none` for no tools
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// Add the tools of an MCP server: NAME=COMMAND or NAME=URL; may be repeated
    #[arg(long, value_name = "SERVER")]
    pub(crate) mcp: Vec<String>,
    /// The folder that the tools work in [default: `agent.workspace` of the configuration]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Which calls run
    #[arg(long, value_name = "POLICY")]
    pub(crate) approve: Option<PolicyArg>,
    /// Ask the model at most so often per message [default: `agent.max_rounds`]
    #[arg(long, alias = "max-steps", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_rounds: Option<u32>,
    /// Demand calls of these tools, in this order, before each answer
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) require: Vec<String>,
    /// Let the model think first
    #[arg(long)]
    pub(crate) thinking: bool,
    /// Do not let it think
    #[arg(long, conflicts_with = "thinking")]
    pub(crate) no_thinking: bool,
    /// Think at most so many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_thinking_tokens: Option<u32>,
    /// Answer with at most so many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_response_tokens: Option<u32>,
    /// How freely tokens are drawn
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(crate) temperature: Option<f32>,
    /// Same seed, same run
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) flags: AgentFlags,
    /// Go on with an earlier conversation: a session file, or `newest`, the default
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "newest")]
    pub(crate) resume: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentKindArg {
    /// The model and its tools
    Vanilla,
    /// It keeps a working memory by tools
    React,
    /// A second request keeps its working memory
    Workflow,
    /// It sees its earlier thoughts, the user does not
    PrivateCot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArg {
    /// Those that only read; others after a question
    Ask,
    /// All
    Auto,
    /// Those that only read
    ReadOnly,
    /// None
    Never,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) flags: AgentFlags,
    /// Write the run to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// What is to be done; `-` reads stdin
    pub(crate) task: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ToolsArgs {
    /// Print them as this wire sends them, or as text for a prompt
    #[arg(long, value_name = "STYLE")]
    pub(crate) style: Option<ToolStyleArg>,
    /// Add the tools that edit working memory in this way
    #[arg(long, value_name = "STRATEGY")]
    pub(crate) memory: Option<MemoryStrategyArg>,
    /// Add the tools of an MCP server: NAME=COMMAND or NAME=URL; may be repeated
    #[arg(long, value_name = "SERVER")]
    pub(crate) mcp: Vec<String>,
    /// Say what a model would miss in their descriptions
    #[arg(long, conflicts_with = "style")]
    pub(crate) lint: bool,
    /// Offer them to another program, as an MCP server on stdin and stdout
    #[arg(long, conflicts_with_all = ["style", "lint"])]
    pub(crate) serve_mcp: bool,
    /// The folder that they work in [default: `agent.workspace` of the configuration]
    #[arg(long, value_name = "DIR", requires = "serve_mcp")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolStyleArg {
    /// Chat Completions
    Openai,
    /// OpenAI Responses
    Responses,
    /// Anthropic Messages
    Anthropic,
    /// The system text for models that write Hermes blocks
    Hermes,
    /// Text for people and prompts
    Markdown,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum MemoryStrategyArg {
    Overwrite,
    PatchAndReplace,
    AppendAndDelete,
    Update,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    /// The configured provider to measure
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Its model, instead of the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Turns at a time, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = cap_from_1)]
    pub(crate) concurrency: Vec<u32>,
    /// Turns of each kind of work
    #[arg(long, value_name = "R", default_value = "5", allow_negative_numbers = true,
          value_parser = cap_from_1)]
    pub(crate) requests: u32,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value = "64", allow_negative_numbers = true,
          value_parser = cap_from_1)]
    pub(crate) max_response_tokens: u32,
    /// Words of the long prompt and of the shared beginning; 0 leaves them out
    #[arg(long, value_name = "N", default_value = "800", allow_negative_numbers = true,
          value_parser = cap_from_0)]
    pub(crate) long_words: u32,
    /// Thinking budgets, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,32,128",
          value_parser = cap_from_0)]
    pub(crate) budgets: Vec<u32>,
    /// Same seed, same prompts [default: others each time]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    /// Questions with their answers, a JSON object per line: `prompt` or `messages`, `answer`, and
    /// if need be `match` (exact, contains, number, regex, json), `tolerance`, `id`
    #[arg(long, value_name = "FILE")]
    pub(crate) dataset: PathBuf,
    /// The budgets: most tokens of a thought, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,32,64,128,256",
          value_parser = cap_from_0)]
    pub(crate) budgets: Vec<u32>,
    /// The configured provider to ask
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// Its model, instead of the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Most tokens of the answer, 1 or more [default: the provider's]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_1)]
    pub(crate) max_response_tokens: Option<u32>,
    /// Ask each question so often at each budget, with another seed each time
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true,
          value_parser = cap_from_1)]
    pub(crate) repeats: u32,
    /// Turns at a time
    #[arg(long, value_name = "N", default_value = "1", allow_negative_numbers = true,
          value_parser = cap_from_1)]
    pub(crate) concurrency: u32,
    /// Same seed, same answers; the budgets share it
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true,
          value_parser = seed)]
    pub(crate) seed: u64,
    /// Randomness, 0 = none [default: the provider's]
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = temperature)]
    pub(crate) temperature: Option<f32>,
    /// Ask only the first so many questions
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_1)]
    pub(crate) limit: Option<u32>,
    /// Keep every turn in this file; a run goes on from the turns that are in it
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Draw the result as SVG too
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EmbedArgs {
    /// The model, instead of the configured one
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct KeysArgs {
    /// The file of the keys [default: `server.keys_file` of the configuration]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) keys_file: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: Option<KeysAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysAction {
    /// List the keys: names, what they open, their limits (the default)
    List,
    /// Make a key, print it this once and add its hash to the file
    New(NewKeyArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NewKeyArgs {
    /// Its name in numbers and logs
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// What it opens, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "chat,embeddings"
    )]
    pub(crate) scopes: Vec<KeyScopeArg>,
    /// Only these models, separated by commas; `*` stands for any run of characters
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) models: Option<Vec<String>>,
    /// Most requests in a minute
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = cap_from_1)]
    pub(crate) requests_per_minute: Option<u32>,
    /// Most tokens in a minute, read and written
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = tokens)]
    pub(crate) tokens_per_minute: Option<u64>,
    /// Most tokens in a day (UTC), read and written
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = tokens)]
    pub(crate) tokens_per_day: Option<u64>,
    /// The first day (UTC) without it, YYYY-MM-DD
    #[arg(long, value_name = "DATE", value_parser = day)]
    pub(crate) expires: Option<i64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KeyScopeArg {
    Chat,
    Embeddings,
    Metrics,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ModelsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsAction {
    /// List the models that are known or here (the default)
    List,
    /// Fetch a model: a name of the list, or hf:OWNER/REPO/FILE.gguf
    Pull {
        /// The model
        name: String,
    },
    /// Say what a model file holds
    Inspect {
        /// A .gguf file or the name of a model that is here
        path: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: Option<ConfigAction>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigAction {
    /// Check every key and every provider (the default)
    Check,
    /// Show every value with its origin, secrets hidden
    Show,
}

fn cap_from_0(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| "must be a whole number of at least 0".to_owned())
}

fn cap_from_1(text: &str) -> Result<u32, String> {
    let cap: Option<u32> = text.parse().ok().filter(|cap| *cap > 0);
    cap.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

fn tokens(text: &str) -> Result<u64, String> {
    let cap: Option<i64> = text.parse().ok().filter(|cap| *cap > 0);
    let cap = cap.and_then(|cap| u64::try_from(cap).ok());
    cap.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

fn day(text: &str) -> Result<i64, String> {
    KeyEntry::day_of(text).ok_or_else(|| "must be a date YYYY-MM-DD".to_owned())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "must be a whole number of at least 0".to_owned())
}

fn temperature(text: &str) -> Result<f32, String> {
    let value: Option<f32> = text
        .parse()
        .ok()
        .filter(|value| (0.0..=100.0).contains(value));
    value.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}

fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| "must be a whole number from 0 to 65535".to_owned())
}
