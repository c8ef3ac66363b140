//! What max–min gives to each box of what can be used.

/// The shares of boxes with these `loads`, each of which owns `safe`. Those that are heard share
/// what they own together; one that is not has its own.
pub(crate) fn shares(loads: &[f64], heard: &[bool], safe: f64) -> Vec<f64> {
    let mut shares: Vec<f64> = loads.iter().map(|load| load.min(safe)).collect();
    let together: Vec<usize> = (0..loads.len()).filter(|number| heard[*number]).collect();
    let mut left = safe * together.len() as f64;
    let mut open = together;
    open.sort_by(|one, two| loads[*one].total_cmp(&loads[*two]));
    // The one that needs least first: what it leaves is for the others.
    for (place, number) in open.iter().enumerate() {
        let share = loads[*number].min(left / (open.len() - place) as f64);
        shares[*number] = share;
        left -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_need_is_for_the_others() {
        let all = [true; 4];
        assert_eq!(shares(&[90.0, 0.0, 0.0, 0.0], &all, 20.0), [80.0, 0.0, 0.0, 0.0]);
        assert_eq!(shares(&[90.0, 10.0, 0.0, 0.0], &all, 20.0), [70.0, 10.0, 0.0, 0.0]);
        assert_eq!(shares(&[90.0; 4], &all, 20.0), [20.0; 4]);
    }

    #[test]
    fn one_that_is_not_heard_has_what_it_owns() {
        let heard = [false, true, true, true];
        assert_eq!(shares(&[90.0, 90.0, 0.0, 0.0], &heard, 20.0), [20.0, 60.0, 0.0, 0.0]);
    }
}
