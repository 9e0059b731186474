use std::sync::Arc;

use crate::reasoning_parser::ReasoningSyntax;
use crate::text::{ByteSet, Marker, MarkerScanner};
use crate::tool_parser::{BlockRules, ChannelKind, RawStart, ToolSyntax};

/// What a marker means.
#[derive(Debug, Clone)]
pub(super) enum Role {
    ThinkOpen(usize),
    ThinkClose(usize),
    ToolOpen(Vec<Arc<BlockRules>>),
    ToolClose,
    AnswerOpen,
    AnswerClose,
    ChannelOpen(ChannelKind),
}

/// The markers that count in one mode.
#[derive(Debug)]
pub(super) struct Markers {
    pub(super) scanner: MarkerScanner,
    pub(super) roles: Vec<Role>,
    /// Where to stop: marker starts, and bytes that change the context.
    pub(super) stops: ByteSet,
}

impl Markers {
    fn new(rows: Vec<(Marker, Role)>, also: &[u8]) -> Self {
        let (markers, roles): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let scanner = MarkerScanner::new(markers);
        let stops = ByteSet::new(scanner.first_bytes().chain(also.iter().copied()));
        Self {
            scanner,
            roles,
            stops,
        }
    }
}

/// The markers of answer text.
pub(super) fn in_text(reasoning: Option<&ReasoningSyntax>, tools: &ToolSyntax) -> Markers {
    let mut rows = Vec::new();
    if let Some(reasoning) = reasoning {
        rows.extend(think_rows(reasoning, true));
        for (open, close) in &reasoning.answer_wrappers {
            rows.push((Marker::tag(open.clone()), Role::AnswerOpen));
            rows.push((Marker::tag(close.clone()), Role::AnswerClose));
        }
    }
    rows.extend(tool_rows(tools));
    for &kind in &tools.watched_channels {
        let openers = kind.unmistakable().iter();
        rows.extend(openers.map(|open| (Marker::exact(*open), Role::ChannelOpen(kind))));
    }
    let mut closes: Vec<Marker> = Vec::new();
    for block in &tools.blocks {
        // A bare code fence closes a fenced call, but alone it is ordinary text.
        for close in block
            .closes()
            .iter()
            .filter(|close| !close.as_str().starts_with('`'))
        {
            if !closes.contains(close) {
                closes.push(close.clone());
            }
        }
    }
    rows.extend(closes.into_iter().map(|close| (close, Role::ToolClose)));
    let mut also = vec![b'\n', b'`', b'~'];
    for block in tools
        .blocks
        .iter()
        .filter(|block| block.raw != RawStart::No)
    {
        also.extend((0..=u8::MAX).filter(|&byte| block.raw_may_start_with(byte)));
    }
    Markers::new(rows, &also)
}

/// The markers of reasoning.
pub(super) fn in_reasoning(reasoning: &ReasoningSyntax, tools: &ToolSyntax) -> Markers {
    let mut rows = think_rows(reasoning, true);
    rows.extend(tool_rows(tools));
    Markers::new(rows, &[])
}

fn think_rows(reasoning: &ReasoningSyntax, with_open: bool) -> Vec<(Marker, Role)> {
    let mut rows = Vec::new();
    for (idx, pair) in reasoning.pairs.iter().enumerate() {
        if with_open {
            rows.extend(
                pair.open
                    .iter()
                    .map(|open| (Marker::tag(open.clone()), Role::ThinkOpen(idx))),
            );
        }
        rows.extend(
            pair.close
                .iter()
                .map(|close| (Marker::tag(close.clone()), Role::ThinkClose(idx))),
        );
    }
    rows
}

/// One row for each opening marker, with all the blocks that it may open.
fn tool_rows(tools: &ToolSyntax) -> Vec<(Marker, Role)> {
    let mut rows: Vec<(Marker, Vec<Arc<BlockRules>>)> = Vec::new();
    for block in &tools.blocks {
        for open in block.opens() {
            match rows.iter_mut().find(|(marker, _)| marker == open) {
                Some((_, blocks)) => blocks.push(block.clone()),
                None => rows.push((open.clone(), vec![block.clone()])),
            }
        }
    }
    rows.into_iter()
        .map(|(marker, blocks)| (marker, Role::ToolOpen(blocks)))
        .collect()
}
