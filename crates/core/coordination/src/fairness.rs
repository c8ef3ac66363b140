//! How evenly something was divided.

/// Jain's index of `shares`: 1 where all are the same, 1/n where one of n has everything. Not a
/// number where there is nothing to divide.
///
/// Source: Jain, Chiu, Hawe, *A quantitative measure of fairness*, DEC TR-301 (1984).
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_have_an_index_of_one_and_a_lone_one_of_its_part() {
        assert_eq!(jain(&[3.0; 7]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert!((jain(&[1.0, 1.0, 2.0, 2.0]) - 0.9).abs() < 1e-9);
        assert!(jain(&[0.0, 0.0]).is_nan() && jain(&[]).is_nan());
    }
}
