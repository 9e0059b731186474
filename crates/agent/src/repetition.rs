//! Steps that go round in a circle.

use std::hash::{DefaultHasher, Hash, Hasher};

use twopass_core::chat::ToolCall;
use twopass_tools::ToolOutput;

/// Longest circle that is looked for, in steps.
const MAX_PERIOD: usize = 3;

/// Remembers the steps of a run by what they called and what came of it: the same call with
/// another result is progress.
#[derive(Debug, Clone)]
pub(crate) struct Repetition {
    max_repeats: usize,
    steps: Vec<u64>,
}

impl Repetition {
    pub(crate) fn new(max_repeats: u32) -> Self {
        Self {
            // Once is no repetition.
            max_repeats: usize::try_from(max_repeats).unwrap_or(usize::MAX).max(2),
            steps: Vec::new(),
        }
    }

    /// Takes a step; gives how far the run has gone round beyond what is allowed: 0 not, 1
    /// the limit is reached, 2 it is exceeded.
    pub(crate) fn record(&mut self, results: &[(ToolCall, ToolOutput)]) -> u8 {
        let mut hasher = DefaultHasher::new();
        for (call, output) in results {
            call.name.hash(&mut hasher);
            call.arguments.as_text().hash(&mut hasher);
            output.text.hash(&mut hasher);
        }
        self.steps.push(hasher.finish());
        let levels = (1..=MAX_PERIOD).map(|period| self.excess(period));
        levels.max().unwrap_or(0)
    }

    fn excess(&self, period: usize) -> u8 {
        let latest = self.steps.iter().rev();
        let same = latest
            .zip(self.steps.iter().rev().skip(period))
            .take_while(|(step, earlier)| step == earlier);
        let n_rounds = same.count() / period + 1;
        match n_rounds.cmp(&self.max_repeats) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Greater => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use twopass_core::chat::Arguments;

    use super::*;

    // Row L1, loop detection: each letter is a step with calls and results of its own.
    #[test]
    fn circles_are_found() {
        let table = [
            ("aaa", [0, 0, 1].as_slice()),
            ("aaaa", &[0, 0, 1, 2]),
            ("aabaa", &[0, 0, 0, 0, 0]),
            ("ababab", &[0, 0, 0, 0, 0, 1]),
            ("abcabcabcabc", &[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2]),
            ("abcdefgh", &[0; 8]),
        ];
        for (steps, expected) in table {
            let mut repetition = Repetition::new(3);
            let levels = steps.chars().map(|step| {
                let arguments =
                    Arguments::from_object(json!({"q": step}).as_object().unwrap().clone());
                let call = ToolCall {
                    id: "x".to_owned(),
                    name: "find".to_owned(),
                    arguments,
                };
                repetition.record(&[(call, ToolOutput::text("r"))])
            });
            assert_eq!(levels.collect::<Vec<_>>(), expected, "{steps}");
        }
    }
}
