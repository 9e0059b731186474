/// Bytes that are looked at one block at a time, without a branch, so that the compiler makes
/// vector instructions of it.
const BLOCK_BYTES: usize = 16;

/// Offset of the first byte that `stops` picks, or the length.
#[inline]
pub fn find_byte(bytes: &[u8], stops: impl Fn(u8) -> bool) -> usize {
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK_BYTES) {
        if block.iter().fold(false, |any, &byte| any | stops(byte)) {
            break;
        }
        at += BLOCK_BYTES;
    }
    let tail = bytes[at..].iter().position(|&byte| stops(byte));
    tail.map_or(bytes.len(), |found| at + found)
}

/// A set of bytes to look for.
#[derive(Debug, Clone)]
pub(crate) struct ByteSet {
    table: Box<[bool; 256]>,
    /// The bytes, the last one repeated, if they are few enough to compare with each.
    few: Option<[u8; 4]>,
}

impl ByteSet {
    pub(crate) fn new(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut table = Box::new([false; 256]);
        for byte in bytes {
            table[usize::from(byte)] = true;
        }
        let members: Vec<u8> = (0..=u8::MAX)
            .filter(|&byte| table[usize::from(byte)])
            .collect();
        let few = match members[..] {
            [a] => Some([a; 4]),
            [a, b] => Some([a, b, b, b]),
            [a, b, c] => Some([a, b, c, c]),
            [a, b, c, d] => Some([a, b, c, d]),
            _ => None,
        };
        Self { table, few }
    }

    #[inline]
    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.table[usize::from(byte)]
    }

    /// Offset of the first byte of the set at or after `from`, or the length.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], from: usize) -> usize {
        let rest = &bytes[from..];
        from + match self.few {
            Some([a, b, c, d]) => find_byte(rest, |byte| {
                (byte == a) | (byte == b) | (byte == c) | (byte == d)
            }),
            None => {
                let found = rest.iter().position(|&byte| self.contains(byte));
                found.unwrap_or(rest.len())
            }
        }
    }
}
