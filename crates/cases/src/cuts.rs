//! The cuttings that every parser case runs in.

/// One way to cut an input: its name and the lengths of the pieces.
pub(crate) struct Cutting {
    pub(crate) name: String,
    pub(crate) lens: Vec<usize>,
}

const CHUNK_BYTES: [usize; 6] = [1, 2, 3, 5, 7, 13];
const N_RANDOM: u64 = 32;

/// The whole first, then the case's own cutting, fixed chunks, and seeded random cuts.
pub(crate) fn all(len: usize, own: Option<Vec<usize>>) -> Vec<Cutting> {
    let mut cuttings = vec![Cutting {
        name: "whole".to_owned(),
        lens: vec![len],
    }];
    if let Some(lens) = own {
        cuttings.push(Cutting {
            name: "its own chunks".to_owned(),
            lens,
        });
    }
    for bytes in CHUNK_BYTES {
        let mut lens = vec![bytes; len / bytes];
        lens.push(len % bytes);
        cuttings.push(Cutting {
            name: format!("{bytes}-byte chunks"),
            lens,
        });
    }
    for seed in 1..=N_RANDOM {
        cuttings.push(Cutting {
            name: format!("random cuts, seed {seed}"),
            lens: random(len, seed),
        });
    }
    cuttings
}

/// A few long pieces for low seeds, many short ones for high seeds.
fn random(len: usize, seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let longest = (len as u64 / seed).clamp(2, 4096);
    let mut lens = Vec::new();
    let mut left = len;
    while left > 0 {
        let piece = usize::try_from(1 + next() % longest).unwrap_or(1).min(left);
        lens.push(piece);
        left -= piece;
    }
    lens
}

/// The pieces of `bytes`.
pub(crate) fn pieces<'a>(bytes: &'a [u8], lens: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    lens.iter().map(move |&len| {
        let (piece, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        piece
    })
}
