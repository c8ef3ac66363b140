//! Runs that share the machine's cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `run` for each number below `count`, in order, on up to `jobs` threads. Any of
/// them reports the finished part of all (0 to 1) to `progress`; `run` reports its own part. Once
/// `stop` is true no further number but the first starts, so the results are those of the first
/// numbers.
pub(super) fn each<T: Send>(
    count: usize,
    jobs: usize,
    progress: &(dyn Fn(f64) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
    run: impl Fn(usize, &mut dyn FnMut(f64)) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let parts: Mutex<Vec<f64>> = Mutex::new(vec![0.0; count]);
    let work = || {
        loop {
            // Relaxed: each number is handed out once, and nothing is read in its wake.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || (number > 0 && stop()) {
                break;
            }
            let mut tell = |part: f64| {
                let mut parts = parts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                parts[number] = part;
                progress(parts.iter().sum::<f64>() / count as f64);
            };
            let result = run(number, &mut tell);
            tell(1.0);
            *results[number].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.clamp(1, count.max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let taken = |result: Mutex<Option<T>>| {
        result.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    // A thread that panics ends the scope, so all that were begun are there.
    results.into_iter().filter_map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_on_any_number_of_threads() {
        for jobs in [0, 1, 3, 100] {
            let reported = Mutex::new(0.0);
            let tell = |part| *reported.lock().unwrap() = part;
            let squares = each(10, jobs, &tell, &|| false, |n, _| n * n);
            assert_eq!(squares, (0..10).map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(reported.into_inner().unwrap(), 1.0);
        }
        assert!(each(0, 4, &|_| {}, &|| false, |n, _| n).is_empty());
    }

    #[test]
    fn a_stop_leaves_the_results_of_the_first_numbers() {
        for jobs in [1, 3] {
            let done = AtomicUsize::new(0);
            let stop = || done.load(Ordering::Relaxed) >= 4;
            let made = each(100, jobs, &|_| {}, &stop, |number, _| {
                done.fetch_add(1, Ordering::Relaxed);
                number
            });
            assert!((4..100).contains(&made.len()), "{made:?}");
            assert_eq!(made, (0..made.len()).collect::<Vec<_>>());
        }
        assert_eq!(each(5, 1, &|_| {}, &|| true, |n, _| n), [0], "the first is always made");
    }
}
