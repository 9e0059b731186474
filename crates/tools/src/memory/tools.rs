//! Memory as the model sees it.

use schemars::JsonSchema;
use serde::Deserialize;
use twopass_core::calendar::civil_date;

use super::{Memory, NewMemory, Recalled};
use crate::{Effect, ToolContext, ToolError, ToolOutput, TypedTool};

/// Searches your long-term memory, which holds what was stored in earlier conversations and
/// in this one. Use it before you say that you do not know something about the user, their
/// projects or earlier agreements. The best matches come first, each with the day on which it
/// was stored; memories may be out of date.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecallMemoryArgs {
    /// What to look for, in words or as a question.
    #[schemars(length(min = 1, max = 2000))]
    query: String,
    /// Most memories to return.
    #[serde(default = "a_few")]
    #[schemars(range(min = 1, max = 50))]
    n_results: usize,
}

fn a_few() -> usize {
    5
}

/// `recall_memory`
pub struct RecallMemory {
    memory: Memory,
}

impl RecallMemory {
    /// The tool on this memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

impl TypedTool for RecallMemory {
    type Args = RecallMemoryArgs;
    const NAME: &'static str = "recall_memory";
    const EFFECT: Effect = Effect::Reads;

    async fn run(&self, args: RecallMemoryArgs, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let found = self.memory.recall(&args.query, args.n_results).await?;
        if found.is_empty() {
            return Ok("[nothing is remembered about this]".to_owned().into());
        }
        let lines: Vec<String> = found
            .iter()
            .enumerate()
            .map(|(idx, m)| line(idx, m))
            .collect();
        Ok(lines.join("\n").into())
    }
}

/// `1. [2026-11-28, importance 0.8, tags: a, b] text`
fn line(idx: usize, memory: &Recalled) -> String {
    let tags = if memory.tags.is_empty() {
        String::new()
    } else {
        format!(", tags: {}", memory.tags.join(", "))
    };
    format!(
        "{}. [{}, importance {:.1}{tags}] {}",
        idx + 1,
        day(memory.created_ms),
        memory.importance,
        memory.content
    )
}

/// Stores something in your long-term memory, so that recall_memory finds it in later
/// conversations. Store facts that will matter again: preferences, decisions, names, results;
/// write each as a sentence that can be understood alone. Do not store secrets such as
/// passwords, nor what is only of use right now.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreMemoryArgs {
    /// What to remember, at most 8000 characters.
    #[schemars(length(min = 1, max = 8000))]
    content: String,
    /// How important it is, from 0 (trivial) to 1 (vital).
    #[serde(default = "middling")]
    #[schemars(range(min = 0.0, max = 1.0))]
    importance: f64,
    /// Words to find it by, at most 16.
    #[serde(default)]
    #[schemars(length(max = 16))]
    tags: Vec<String>,
}

fn middling() -> f64 {
    0.5
}

/// `store_memory`
pub struct StoreMemory {
    memory: Memory,
}

impl StoreMemory {
    /// The tool on this memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

impl TypedTool for StoreMemory {
    type Args = StoreMemoryArgs;
    const NAME: &'static str = "store_memory";
    const EFFECT: Effect = Effect::Writes;

    async fn run(&self, args: StoreMemoryArgs, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let StoreMemoryArgs {
            content,
            importance,
            tags,
        } = args;
        let new = NewMemory {
            content,
            importance,
            tags,
        };
        let is_new = self.memory.store(new).await?;
        let text = if is_new {
            "stored"
        } else {
            "this was stored already"
        };
        Ok(text.to_owned().into())
    }
}

/// The UTC day of a time in milliseconds since 1970, as `YYYY-MM-DD`.
fn day(ms: i64) -> String {
    let (year, month, day) = civil_date(ms.div_euclid(86_400_000));
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (86_399_999, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_795_824_000_000, "2026-11-28"),
            (-1, "1969-12-31"),
        ];
        for (ms, expect) in cases {
            assert_eq!(day(ms), expect);
        }
    }
}
