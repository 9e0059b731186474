/// How much a model is to think, where a provider decides it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Thinking {
    /// Nothing is said.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// As much as it likes.
    On,
    /// At most this many tokens.
    Budget(u32),
    /// By a word such as `low`.
    Effort(String),
}

impl Thinking {
    /// The effort word that stands for this, where a wire knows words only: no budget is
    /// `none`, up to 1024 tokens `low`, up to 8192 `medium`, above `high`.
    #[must_use]
    pub fn effort(&self) -> Option<&str> {
        match self {
            Self::Default => None,
            Self::Off | Self::Budget(0) => Some("none"),
            Self::Budget(..=1024) => Some("low"),
            Self::On | Self::Budget(..=8192) => Some("medium"),
            Self::Budget(_) => Some("high"),
            Self::Effort(word) => Some(word),
        }
    }

    /// The budget that stands for this, where a wire knows numbers only; `None` for off and
    /// for nothing said.
    #[must_use]
    pub fn budget(&self) -> Option<u32> {
        match self {
            Self::Default | Self::Off => None,
            Self::Budget(tokens) => Some(*tokens),
            Self::On => Some(8192),
            Self::Effort(word) => match word.as_str() {
                "none" => None,
                "minimal" | "low" => Some(1024),
                "high" => Some(16_384),
                "xhigh" | "max" => Some(32_768),
                _ => Some(8192),
            },
        }
    }

    /// Reads an effort word; `none` is off.
    #[must_use]
    pub fn from_effort(word: &str) -> Self {
        match word {
            "none" => Self::Off,
            word => Self::Effort(word.to_owned()),
        }
    }

    /// True if thinking was asked for, in whatever way.
    #[must_use]
    pub fn is_on(&self) -> bool {
        match self {
            Self::Default | Self::Off | Self::Budget(0) => false,
            Self::On | Self::Budget(_) => true,
            Self::Effort(word) => word != "none",
        }
    }
}
