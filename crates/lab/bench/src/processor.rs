//! The CPU time of threads.

use crate::coordination::cores::Cores;
use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

/// This thread's CPU time in nanoseconds. It excludes other threads, also on a busy machine.
pub(crate) fn time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The CPU time in nanoseconds that each of `packets` packets takes, on average, if `work` handles
/// them on `cpus` of the `cores` at once. It gets the thread's number.
pub(crate) fn time_of_each(
    packets: u32,
    cpus: usize,
    cores: &Cores,
    work: impl Fn(usize) -> Result<()> + Sync,
) -> Result<f64> {
    let one = |number: usize| -> Result<f64> {
        let began = time();
        work(number)?;
        Ok((time() - began) as f64 / f64::from(packets))
    };
    let costs: Vec<f64> = cores.together(0..cpus, one)?.into_iter().collect::<Result<_>>()?;
    Ok(costs.iter().sum::<f64>() / cpus as f64)
}
