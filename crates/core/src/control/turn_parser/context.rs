/// Where in the answer's Markdown a place is: enough to tell markup from a mention of it.
///
/// Kept up to date by every byte of answer text; looks back at nothing.
#[derive(Debug, Clone)]
pub(super) struct TextContext {
    line_blank: bool,
    block_edge: bool,
    quote_line: bool,
    /// The run of backticks or tildes that ends here, and which of them it is of.
    ticks: u32,
    tick: u8,
    ticks_at_line_start: bool,
    inline: u32,
    /// Length and byte of the open code fence.
    fence: u32,
    fence_of: u8,
    prev: u8,
}

impl TextContext {
    /// The start of an answer, or the place right after a block.
    pub(super) fn new() -> Self {
        Self {
            line_blank: true,
            block_edge: true,
            quote_line: false,
            ticks: 0,
            tick: b'`',
            ticks_at_line_start: false,
            inline: 0,
            fence: 0,
            fence_of: b'`',
            prev: b'\n',
        }
    }

    /// A block or a dropped marker ended here.
    pub(super) fn after_block(&mut self) {
        let (fence, fence_of) = (self.fence, self.fence_of);
        *self = Self::new();
        (self.fence, self.fence_of) = (fence, fence_of);
    }

    /// Takes text that holds neither line ends nor backticks nor tildes.
    #[inline]
    pub(super) fn plain(&mut self, run: &[u8]) {
        if self.ticks > 0 {
            self.end_ticks();
        }
        if (self.line_blank || self.block_edge)
            && let Some(&first) = run.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            self.quote_line |= self.line_blank && first == b'>';
            self.line_blank = false;
            self.block_edge = false;
        }
        if let Some(&last) = run.last() {
            self.prev = last;
        }
    }

    /// Takes one byte of any kind.
    pub(super) fn byte(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.end_ticks();
                self.line_blank = true;
                self.quote_line = false;
                self.inline = 0;
                self.prev = byte;
            }
            b'`' | b'~' => {
                if self.tick != byte {
                    self.end_ticks();
                }
                if self.ticks == 0 {
                    self.ticks_at_line_start = self.line_blank;
                    self.tick = byte;
                }
                self.ticks += 1;
                self.line_blank = false;
                self.block_edge = false;
                self.prev = byte;
            }
            _ => self.plain(&[byte]),
        }
    }

    /// Takes the text of a marker that was only mentioned.
    pub(super) fn mention(&mut self, text: &str) {
        for &byte in text.as_bytes() {
            self.byte(byte);
        }
    }

    fn end_ticks(&mut self) {
        let run = std::mem::take(&mut self.ticks);
        if run == 0 {
            return;
        }
        if self.ticks_at_line_start && run >= 3 {
            if self.fence == 0 {
                (self.fence, self.fence_of) = (run, self.tick);
            } else if run >= self.fence && self.tick == self.fence_of {
                self.fence = 0;
            }
        } else if self.fence == 0 && self.tick == b'`' {
            if self.inline == 0 {
                self.inline = run;
            } else if self.inline == run {
                self.inline = 0;
            }
        }
    }

    /// True inside a code span or a code fence.
    pub(super) fn in_code(&mut self) -> bool {
        self.end_ticks();
        self.fence > 0 || self.inline > 0
    }

    /// True inside a code fence.
    pub(super) fn in_fence(&self) -> bool {
        self.fence > 0
    }

    /// True if only white space stands between here and the start of the line.
    pub(super) fn at_line_start(&self) -> bool {
        self.line_blank
    }

    /// True if only white space stands between here and the start or the last block.
    pub(super) fn at_block_edge(&self) -> bool {
        self.block_edge
    }

    /// True where a block may begin.
    pub(super) fn at_block_start(&self) -> bool {
        (self.line_blank || self.block_edge) && !self.quote_line
    }

    /// True on a line that quotes (`> `).
    pub(super) fn is_quoting(&self) -> bool {
        self.quote_line
    }

    /// The last byte, a line end at the start.
    pub(super) fn prev(&self) -> u8 {
        self.prev
    }
}
