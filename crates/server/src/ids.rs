use std::hash::{BuildHasher, RandomState};

/// A new id of 32 hex digits that nobody can guess: the standard library's keys for hash
/// tables, which the system draws.
pub(crate) fn new_id() -> String {
    let half = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::new_id;

    #[test]
    fn ids_differ() {
        let (one, other) = (new_id(), new_id());
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_ne!(one, other);
        assert_ne!(one[..16], one[16..]);
    }
}
