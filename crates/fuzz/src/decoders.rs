//! The stream decoders: any bytes, any cutting, one result.

use twopass_wire::ndjson;
use twopass_wire::sse::{Decoder, DecoderOptions};

use crate::Target;
use crate::random::{Random, pieces};

/// Small, so that inputs meet it.
const MAX_BYTES: usize = 64;

pub(crate) struct Sse;

pub(crate) struct Ndjson;

/// Pieces of a format in any order, some of them damaged.
fn soup(random: &mut Random, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(24) {
        let part = random.pick(parts);
        let end = if random.one_in(6) {
            random.below(part.len() + 1)
        } else {
            part.len()
        };
        bytes.extend_from_slice(&part[..end]);
    }
    if random.one_in(3) && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] = random.bits().to_le_bytes()[0];
    }
    bytes
}

impl Target for Sse {
    fn name(&self) -> String {
        "sse".to_owned()
    }

    fn input(&self, random: &mut Random) -> Vec<u8> {
        let parts: [&[u8]; 18] = [
            b"data: {\"a\": 1}",
            b"data:x",
            b"data",
            b"data: [DONE]",
            b"event: done",
            b"event:",
            b"id: 1",
            b"retry: 5",
            b": comment",
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"\r\n\r\n",
            "\u{feff}".as_bytes(),
            "größer 😀".as_bytes(),
            b"\xff\xfe",
            b"0123456789012345678901234567890123456789",
        ];
        soup(random, &parts)
    }

    fn check(&self, input: &[u8], random: &mut Random) -> Result<(), String> {
        let decode = |lens: &[usize]| {
            let mut decoder = Decoder::new(DecoderOptions {
                max_event_bytes: MAX_BYTES,
                end_marker: Some("[DONE]".to_owned()),
            });
            let mut events = Vec::new();
            let mut fault = None;
            for piece in pieces(input, lens) {
                fault = decoder.push(piece, &mut events).err();
                if fault.is_some() {
                    break;
                }
            }
            if fault.is_none() {
                decoder.finish(&mut events);
            }
            (events, fault, decoder.is_done(), decoder.is_truncated())
        };
        let whole = decode(&[input.len()]);
        // A byte that is not UTF-8 becomes three.
        if whole.0.iter().any(|event| event.data.len() > 3 * MAX_BYTES) {
            return Err("an event is over the limit".to_owned());
        }
        same(whole, random, input.len(), decode)
    }
}

impl Target for Ndjson {
    fn name(&self) -> String {
        "ndjson".to_owned()
    }

    fn input(&self, random: &mut Random) -> Vec<u8> {
        let parts: [&[u8]; 8] = [
            b"{\"message\": {\"content\": \"a\"}}",
            b"{}",
            b"\n",
            b"\r\n",
            b"  ",
            "größer 😀".as_bytes(),
            b"\xff",
            b"01234567890123456789012345678901234567890123456789",
        ];
        soup(random, &parts)
    }

    fn check(&self, input: &[u8], random: &mut Random) -> Result<(), String> {
        let decode = |lens: &[usize]| {
            let mut decoder = ndjson::Decoder::new(MAX_BYTES);
            let mut lines = Vec::new();
            let mut fault = None;
            for piece in pieces(input, lens) {
                fault = decoder.push(piece, &mut lines).err();
                if fault.is_some() {
                    break;
                }
            }
            if fault.is_none() {
                decoder.finish(&mut lines);
            }
            (lines, fault)
        };
        same(decode(&[input.len()]), random, input.len(), decode)
    }
}

/// Byte by byte and in random pieces the result is that of the whole.
fn same<T: PartialEq + std::fmt::Debug>(
    whole: T,
    random: &mut Random,
    len: usize,
    decode: impl Fn(&[usize]) -> T,
) -> Result<(), String> {
    for lens in [vec![1; len], random.cuts(len)] {
        let cut = decode(&lens);
        if cut != whole {
            return Err(format!("whole {whole:?}, cut {lens:?} {cut:?}"));
        }
    }
    Ok(())
}
