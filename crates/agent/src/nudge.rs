use crate::Prerequisite;

/// What a model is told that does not keep to the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nudge {
    /// What is wrong.
    pub kind: NudgeKind,
    /// How firmly it is said, 1 to 3.
    pub level: u8,
    /// What the model reads.
    pub text: String,
}

/// What a nudge is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NudgeKind {
    /// The turn had neither text nor a call.
    EmptyAnswer,
    /// A call could not be read, not even its name.
    UnreadableCall,
    /// A call was demanded and none came.
    CallNeeded,
    /// The answer came before the required steps.
    StepsMissing,
    /// A tool was called before what has to come first.
    Prerequisite,
    /// The same calls gave the same results too often.
    Repetition,
}

impl NudgeKind {
    /// The name in JSON and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EmptyAnswer => "empty_answer",
            Self::UnreadableCall => "unreadable_call",
            Self::CallNeeded => "call_needed",
            Self::StepsMissing => "steps_missing",
            Self::Prerequisite => "prerequisite",
            Self::Repetition => "repetition",
        }
    }
}

/// The texts of nudges. In them `{steps}`, `{reason}`, `{tool}`, `{needs}` and `{argument}`
/// are filled in, each where it is named below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NudgeTexts {
    /// After a turn without text and calls.
    pub empty: String,
    /// The same, if the token cap ended the turn.
    pub cut_short: String,
    /// After a call that cannot be read: `{reason}`.
    pub unreadable: String,
    /// If a call was demanded and none came.
    pub call_needed: String,
    /// After an answer that came too early, level by level: `{steps}`.
    pub steps_missing: [String; 3],
    /// After a call that came too early: `{tool}`, `{needs}`.
    pub prerequisite: String,
    /// The same, where an argument must be equal: `{tool}`, `{needs}`, `{argument}`.
    pub prerequisite_argument: String,
    /// After the same calls with the same results.
    pub repetition: String,
}

impl Default for NudgeTexts {
    fn default() -> Self {
        Self {
            empty: "Your last turn was empty. Write your answer as plain text now, or call a tool."
                .to_owned(),
            cut_short: "Your last turn reached the token limit before any answer. Think less and \
                        write a short answer now, or call a tool."
                .to_owned(),
            unreadable: "Your tool call could not be read: {reason}. Write it again, with the \
                         tool's name and its arguments as one JSON object."
                .to_owned(),
            call_needed: "This step needs a tool call. Call one of the tools; do not answer in \
                          text."
                .to_owned(),
            steps_missing: [
                "You are not done yet. Before you answer, call: {steps}.".to_owned(),
                "Your answer does not count, because these tools have not been called: {steps}. \
                 Call them next."
                    .to_owned(),
                "Stop answering. The only thing that you may do now is to call: {steps}."
                    .to_owned(),
            ],
            prerequisite: "`{tool}` may be called only after `{needs}` has succeeded. Call \
                           `{needs}` first."
                .to_owned(),
            prerequisite_argument: "`{tool}` may be called only after `{needs}` has succeeded \
                                    with the same `{argument}`. Call `{needs}` first."
                .to_owned(),
            repetition: "You have made the same calls several times and they gave the same \
                         results. Do something else, or answer with what you know."
                .to_owned(),
        }
    }
}

impl NudgeTexts {
    pub(crate) fn unreadable(&self, reason: &str) -> String {
        self.unreadable.replace("{reason}", reason)
    }

    pub(crate) fn steps_missing(&self, level: u8, steps: &[&str]) -> String {
        let steps: Vec<_> = steps.iter().map(|step| format!("`{step}`")).collect();
        let text = &self.steps_missing[usize::from(level.clamp(1, 3)) - 1];
        text.replace("{steps}", &steps.join(", "))
    }

    pub(crate) fn prerequisite(&self, rule: &Prerequisite) -> String {
        let text = match &rule.same_argument {
            None => self.prerequisite.clone(),
            Some(name) => self.prerequisite_argument.replace("{argument}", name),
        };
        text.replace("{tool}", &rule.tool)
            .replace("{needs}", &rule.needs)
    }
}
