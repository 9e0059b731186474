//! Seeded random choices: the same seed gives the same texts.

/// Marsaglia's xorshift generator.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `most`, or 0.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        let most = most.max(1) as u64;
        usize::try_from(self.bits() % most).unwrap_or(0)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Cuts a length into pieces.
    pub(crate) fn cuts(&mut self, len: usize) -> Vec<usize> {
        let longest = *self.pick(&[1, 3, 17, 300]);
        let mut lens = Vec::new();
        let mut left = len;
        while left > 0 {
            let piece = (1 + self.below(longest)).min(left);
            lens.push(piece);
            left -= piece;
        }
        lens
    }
}

/// The bytes in pieces of these lengths.
pub(crate) fn pieces<'a>(bytes: &'a [u8], lens: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    lens.iter()
        .map(|&len| {
            let (piece, after) = rest.split_at(len.min(rest.len()));
            rest = after;
            piece
        })
        .collect()
}
