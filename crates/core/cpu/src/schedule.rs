//! The scheduling class of the calling thread.
//!
//! Source: sched(7). The C library of static builds has no working function for it, so the system
//! call is made directly.

use std::io;

/// A scheduling class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// `SCHED_OTHER`: threads share a core by their groups and, within a group, by their nice
    /// values.
    Ordinary,
    /// `SCHED_FIFO` with the lowest real-time priority: goes before all ordinary threads, and
    /// behind whatever the system or its operator made real-time on purpose.
    RealTime,
}

/// Gives the calling thread this class; its nice value stays. Threads that it starts later are
/// ordinary.
///
/// # Errors
///
/// `EPERM` if the process may not: it has neither CAP_SYS_NICE nor a limit of real-time priorities
/// (`ulimit -r`), or its control group has no real-time budget.
#[expect(unsafe_code)]
pub fn schedule(class: Class) -> io::Result<()> {
    // The second number is the system call's whole structure of parameters: the priority.
    let (policy, priority): (libc::c_int, libc::c_int) = match class {
        Class::Ordinary => (libc::SCHED_OTHER, 0),
        Class::RealTime => (libc::SCHED_FIFO, 1),
    };
    // SAFETY: the kernel reads one number behind the pointer, and keeps nothing of it. Zero is the
    // calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            policy | libc::SCHED_RESET_ON_FORK,
            &raw const priority,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class of the calling thread, as the kernel prints it.
    fn policy() -> String {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name may contain blanks; the policy is field 41, the first after it is field 3.
        let (_, rest) = text.rsplit_once(')').unwrap();
        rest.split_ascii_whitespace().nth(38).unwrap().to_owned()
    }

    #[test]
    fn a_thread_becomes_real_time_and_ordinary_again_where_it_may() {
        let schedules = std::thread::spawn(|| {
            if let Err(error) = schedule(Class::RealTime) {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                return;
            }
            assert_eq!(policy(), libc::SCHED_FIFO.to_string());
            let inherited = std::thread::spawn(policy).join().unwrap();
            assert_eq!(inherited, libc::SCHED_OTHER.to_string());
            schedule(Class::Ordinary).unwrap();
            assert_eq!(policy(), libc::SCHED_OTHER.to_string());
        });
        schedules.join().unwrap();
    }
}
