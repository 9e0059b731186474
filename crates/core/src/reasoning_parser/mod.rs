//! How models mark their private reasoning: a const table, and the set of tags one turn is
//! read with.
//!
//! Formats that frame reasoning with an opening and a closing marker are rows of
//! [`DIALECTS`]. Formats in which reasoning is one channel of a framed output (harmony,
//! kimi_k3, inkling) are read whole by their file in `tool_parser`; their rows here say so.
//! The state machine that applies a [`ReasoningSyntax`] is the turn parser in `control`.

use crate::chat::ThinkTag;

/// The markers of one kind of block. Spellings are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPair {
    /// What opens a block.
    pub open: Vec<String>,
    /// What closes it.
    pub close: Vec<String>,
    /// A first line inside the block that is framing, such as `thought`.
    pub label: Option<&'static str>,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ReasoningDialect {
    /// The name that configuration and case files use.
    pub name: &'static str,
    /// Model families that write it.
    pub models: &'static str,
    /// `(open, close)`, one pair for each spelling.
    pub pairs: &'static [(&'static str, &'static str)],
    /// Markers that frame the answer and belong to nobody's text.
    pub answer_wrappers: &'static [(&'static str, &'static str)],
    /// A first line inside the block that is framing.
    pub label: Option<&'static str>,
    /// Any opener may be closed by any closer (prose markers with several spellings).
    pub any_close: bool,
    /// With thinking off the model still writes a bare closing marker first.
    pub bare_close_when_off: bool,
    /// Whether output usually begins inside the block.
    pub begins_inside: &'static str,
    /// Reasoning is a channel of the tool dialect of the same name.
    pub is_channel: bool,
    /// Where the format is defined, with the date read.
    pub source: &'static str,
}

const TAGS: ReasoningDialect = ReasoningDialect {
    name: "",
    models: "",
    pairs: &[],
    answer_wrappers: &[],
    label: None,
    any_close: false,
    bare_close_when_off: false,
    begins_inside: "no",
    is_channel: false,
    source: "",
};

/// All reasoning dialects.
pub const DIALECTS: &[ReasoningDialect] = &[
    ReasoningDialect {
        name: "think",
        models: "DeepSeek R1, Qwen3, GLM, Kimi K2.5, Nemotron, MiniMax, MiMo, Step, OLMo 3",
        pairs: &[("<think>", "</think>")],
        begins_inside: "R1, Qwen3-Thinking, Qwen3.5, K2.5, DeepSeek V3.2+",
        source: "the models' chat templates, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "thinking",
        models: "prompted models",
        pairs: &[("<thinking>", "</thinking>")],
        begins_inside: "by configuration",
        source: "think_tag of the two-pass protocol",
        ..TAGS
    },
    ReasoningDialect {
        name: "reasoning",
        models: "prompted models",
        pairs: &[("<reasoning>", "</reasoning>")],
        source: "prompting practice",
        ..TAGS
    },
    ReasoningDialect {
        name: "think_bracket",
        models: "Magistral, Ministral 3",
        pairs: &[("[THINK]", "[/THINK]")],
        source: "Mistral tokenizer v13, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "moon_think",
        models: "Kimi-VL, Kimi K1.5",
        pairs: &[("◁think▷", "◁/think▷")],
        source: "Kimi-VL chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "seed_think",
        models: "Seed-OSS",
        pairs: &[("<seed:think>", "</seed:think>")],
        begins_inside: "by option",
        source: "Seed-OSS chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "mm_think",
        models: "MiniMax M3",
        pairs: &[("<mm:think>", "</mm:think>")],
        bare_close_when_off: true,
        begins_inside: "with thinking on",
        source: "MiniMax-M3 chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "granite_thought",
        models: "Granite 3.2",
        pairs: &[
            ("Here is my thought process:", "Here is my response:"),
            ("Here's my thought process:", "Here's my response:"),
        ],
        any_close: true,
        source: "Granite 3.2 model card, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "hunyuan_a13b_think",
        models: "Hunyuan-A13B",
        pairs: &[("<think>", "</think>")],
        answer_wrappers: &[("<answer>", "</answer>")],
        source: "Hunyuan-A13B chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "ernie_think",
        models: "ERNIE 4.5 Thinking",
        pairs: &[("<think>", "</think>")],
        answer_wrappers: &[("<response>", "</response>")],
        begins_inside: "yes",
        source: "ERNIE-4.5-Thinking chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "gemma4_channel",
        models: "Gemma 4",
        pairs: &[("<|channel>", "<channel|>")],
        label: Some("thought"),
        source: "Gemma 4 chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "cohere_thinking",
        models: "Command R7B, Command A",
        pairs: &[("<|START_THINKING|>", "<|END_THINKING|>")],
        answer_wrappers: &[
            ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
            ("<|START_TEXT|>", "<|END_TEXT|>"),
        ],
        begins_inside: "Command A+",
        source: "Command R7B chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "apertus_inner",
        models: "Apertus",
        pairs: &[("<|inner_prefix|>", "<|inner_suffix|>")],
        source: "Apertus-8B chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "hy_think",
        models: "Tencent HY 3, HY 4",
        pairs: &[
            ("<think>", "</think>"),
            ("<think:opensource>", "</think:opensource>"),
        ],
        begins_inside: "by effort",
        source: "HY3 tokenizer configuration, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "plamo_think",
        models: "PLaMo 3",
        pairs: &[("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")],
        begins_inside: "with thinking on",
        source: "vLLM's PLaMo 3 parsers and their tests, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "harmony",
        models: "gpt-oss",
        is_channel: true,
        source: "the Harmony format description, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "kimi_k3",
        models: "Kimi K3",
        begins_inside: "yes",
        is_channel: true,
        source: "Kimi K3 chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "inkling",
        models: "Inkling",
        is_channel: true,
        source: "Inkling chat template, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "beam",
        models: "Beam",
        is_channel: true,
        source: "dynamo-parsers-v2 0.9.6, grammar and tests of the format, read 2026-11",
        ..TAGS
    },
    ReasoningDialect {
        name: "muse",
        models: "Muse Glimmer, Muse Spark",
        is_channel: true,
        source: "dynamo-parsers-v2 0.9.6, grammar and tests of the format, read 2026-11",
        ..TAGS
    },
];

/// The dialect of this name.
#[must_use]
pub fn dialect(name: &str) -> Option<&'static ReasoningDialect> {
    DIALECTS.iter().find(|row| row.name == name)
}

/// The markers that one turn is read with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReasoningSyntax {
    /// The kinds of block.
    pub pairs: Vec<TagPair>,
    /// Markers around the answer that are dropped.
    pub answer_wrappers: Vec<(String, String)>,
    /// A bare closing marker is dropped even with thinking off.
    pub bare_close_when_off: bool,
}

impl ReasoningSyntax {
    /// No markers at all: the whole text is the answer (`direct_response`).
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// `<think>` and `<thinking>`: what `think_tags` means.
    #[must_use]
    pub fn think_tags() -> Self {
        Self::from_rows(["think", "thinking"])
    }

    /// The default set: the three XML names and `[THINK]`.
    #[must_use]
    pub fn auto() -> Self {
        Self::from_rows(["think", "thinking", "reasoning", "think_bracket"])
    }

    /// One tag only, the one that a two-pass turn was opened with.
    #[must_use]
    pub fn for_tag(tag: ThinkTag) -> Self {
        Self::from_rows([tag.as_str()])
    }

    /// The syntax of a name: `auto`, `think_tags`, `none`, `direct_response`, a row of the
    /// table, or several of these joined by `+`. `mistral` is another name of
    /// `think_bracket`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut syntax = Self::none();
        for part in name.split('+') {
            match part.trim() {
                "none" | "direct_response" => {}
                "auto" => syntax.join(Self::auto()),
                "think_tags" => syntax.join(Self::think_tags()),
                "mistral" => syntax.join(Self::from_rows(["think_bracket"])),
                "seed_oss" => syntax.join(Self::from_rows(["seed_think"])),
                "hy_v3" | "hy_v4" => syntax.join(Self::from_rows(["hy_think"])),
                part => syntax.join(Self::from_rows([dialect(part)?.name])),
            }
        }
        Some(syntax)
    }

    /// Adds a block kind of one's own.
    pub fn push_pair(&mut self, open: impl Into<String>, close: impl Into<String>) {
        self.pairs.push(TagPair {
            open: vec![open.into()],
            close: vec![close.into()],
            label: None,
        });
    }

    fn from_rows<const N: usize>(names: [&str; N]) -> Self {
        let mut syntax = Self::none();
        for row in names.into_iter().filter_map(dialect) {
            syntax.push_row(row);
        }
        syntax
    }

    fn push_row(&mut self, row: &ReasoningDialect) {
        let strings = |side: fn(&(&'static str, &'static str)) -> &'static str| {
            row.pairs
                .iter()
                .map(|pair| side(pair).to_owned())
                .collect::<Vec<_>>()
        };
        let pair = |open, close| TagPair {
            open,
            close,
            label: row.label,
        };
        if row.any_close {
            self.pairs
                .push(pair(strings(|pair| pair.0), strings(|pair| pair.1)));
        } else {
            for &(open, close) in row.pairs {
                self.pairs
                    .push(pair(vec![open.to_owned()], vec![close.to_owned()]));
            }
        }
        for &(open, close) in row.answer_wrappers {
            self.answer_wrappers
                .push((open.to_owned(), close.to_owned()));
        }
        self.bare_close_when_off |= row.bare_close_when_off;
    }

    fn join(&mut self, other: Self) {
        for pair in other.pairs {
            if !self.pairs.contains(&pair) {
                self.pairs.push(pair);
            }
        }
        self.answer_wrappers.extend(other.answer_wrappers);
        self.bare_close_when_off |= other.bare_close_when_off;
    }
}
