//! How well a memory fits: numbers only.

use std::collections::HashMap;

/// The constant of reciprocal rank fusion: how little the first places stand out.
const RRF_K: f64 = 60.0;

/// What one hour leaves of the recency.
const HOURLY: f64 = 0.995;

/// Hours after which a memory gets no older.
const MAX_HOURS: f64 = 720.0;

/// Merges rankings by words and by meaning into one relevance from 0 to 1 for each id. With
/// vectors both count half; without them words are all there is.
pub(super) fn relevances(rankings: &[Vec<i64>; 2], has_vectors: bool) -> HashMap<i64, f64> {
    let weight = if has_vectors { 0.5 } else { 1.0 };
    let mut relevances = HashMap::new();
    for ranking in rankings {
        for (idx, id) in ranking.iter().enumerate() {
            // 1 for the first place of one ranking.
            let score = (RRF_K + 1.0) / (RRF_K + 1.0 + idx as f64);
            *relevances.entry(*id).or_insert(0.0) += weight * score;
        }
    }
    relevances
}

/// Relevance, recency and importance as one number from 0 to 1.
pub(super) fn quality(relevance: f64, age_ms: i64, importance: f64) -> f64 {
    let hours = (age_ms.max(0) as f64 / 3_600_000.0).min(MAX_HOURS);
    0.5 * relevance + 0.3 * HOURLY.powf(hours) + 0.2 * importance
}

/// The vector with length 1; `None` if it has no direction.
pub(super) fn normalised(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if !length.is_finite() || length == 0.0 {
        return None;
    }
    vector.iter_mut().for_each(|x| *x /= length);
    Some(vector)
}

/// The cosine of two vectors of length 1; 0 if they are of different spaces.
pub(super) fn similarity(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row L6.
    #[test]
    fn l6_ranks_are_fused_and_weighed() {
        let both = relevances(&[vec![1, 2], vec![2, 3]], true);
        assert!((both[&1] - 0.5).abs() < 1e-9);
        assert!((both[&2] - 0.5 * (61.0 / 62.0 + 1.0)).abs() < 1e-9);
        assert!(both[&2] > both[&1] && both[&1] > both[&3]);
        let words = relevances(&[vec![1], vec![]], false);
        assert!((words[&1] - 1.0).abs() < 1e-9);

        let hour = 3_600_000;
        assert!((quality(1.0, 0, 1.0) - 1.0).abs() < 1e-9);
        assert!((quality(0.0, hour, 0.0) - 0.3 * 0.995).abs() < 1e-9);
        assert_eq!(
            quality(0.0, 720 * hour, 0.0),
            quality(0.0, 9000 * hour, 0.0)
        );
        assert_eq!(quality(0.0, -hour, 0.0), quality(0.0, 0, 0.0));
    }

    #[test]
    fn vectors_have_length_one_or_none() {
        assert_eq!(normalised(vec![3.0, 4.0]), Some(vec![0.6, 0.8]));
        assert_eq!(normalised(vec![0.0, 0.0]), None);
        assert_eq!(normalised(vec![f32::NAN]), None);
        assert_eq!(similarity(&[1.0], &[1.0, 0.0]), 0.0);
    }
}
