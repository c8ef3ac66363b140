//! Loads an object, and explains why the kernel refused it.
//!
//! An errno alone does not distinguish a missing privilege from a missing kernel function or from
//! the verifier's refusal, which need different remedies. libbpf prints the reason line by line. So
//! its lines are collected while it loads, and searched afterwards. They reach the log only at
//! debug level.

use libbpf_rs::{ErrorKind, OpenObject, PrintLevel};
use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
use std::time::Duration;

/// A load is tried so often if signals interrupt it, with so much time between.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Why the kernel did not load a program.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The process may not.
    #[error(
        "not permitted; loading BPF programs needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted,
    /// The program calls a kernel function that is not there.
    #[error("this kernel has no {function} at the moment")]
    Missing {
        /// The function's name.
        function: String,
    },
    /// The verifier does not accept the program.
    #[error("the kernel's verifier refuses it: {reason}")]
    Refused {
        /// The last line of the verifier's log that says why.
        reason: String,
    },
    /// Another failure.
    #[error("{0}")]
    Other(libbpf_rs::Error),
}

impl LoadError {
    /// The cause of `error`, of which libbpf `said` more.
    pub(crate) fn judge(said: &str, error: libbpf_rs::Error) -> Self {
        if let Some(function) = missing_function(said) {
            return Self::Missing { function: function.to_owned() };
        }
        // The verifier did not come to the end, whatever it said before.
        let no_verdict = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::OutOfMemory];
        if no_verdict.contains(&error.kind()) {
            return Self::Other(error);
        }
        // Before the kind of error is checked: the verifier also returns EACCES.
        if let Some(reason) = verifier_s_reason(said) {
            // Only without CAP_PERFMON (allow_ptr_leaks in kernel/bpf/verifier.c).
            if reason.ends_with("pointer -= pointer prohibited") {
                return Self::NotPermitted;
            }
            return Self::Refused { reason: reason.to_owned() };
        }
        match error.kind() {
            ErrorKind::PermissionDenied => Self::NotPermitted,
            _ => Self::Other(error),
        }
    }
}

thread_local! {
    /// libbpf's messages on this thread, while they are collected.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn hear(_: PrintLevel, words: String) {
    log::debug!("{}", words.trim_end());
    SAID.with_borrow_mut(|said| {
        if let Some(said) = said {
            said.push_str(&words);
        }
    });
}

/// Runs `load`, and finds the cause if it fails.
pub(crate) fn explained<T>(
    load: impl FnOnce() -> Result<T, libbpf_rs::Error>,
) -> Result<T, LoadError> {
    let (result, said) = heard(load);
    result.map_err(|error| LoadError::judge(&said, error))
}

/// Room for an object, for each try to load it.
pub(crate) struct Tries([MaybeUninit<OpenObject>; TRIES]);

impl Tries {
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; TRIES])
    }

    /// Runs `load`, again while the kernel is interrupted, and finds the cause if it fails.
    ///
    /// A signal that is pending ends the verifier's work (EAGAIN), the more likely the longer that
    /// takes. libbpf tries five times at once; this leaves time for signals to be handled.
    pub(crate) fn explained<'a, T>(
        &'a mut self,
        mut load: impl FnMut(&'a mut MaybeUninit<OpenObject>) -> Result<T, libbpf_rs::Error>,
    ) -> Result<T, LoadError> {
        for room in &mut self.0 {
            let (result, said) = heard(|| load(room));
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                other => return other.map_err(|error| LoadError::judge(&said, error)),
            }
        }
        Err(LoadError::Other(io::Error::from(io::ErrorKind::WouldBlock).into()))
    }
}

/// Runs `load`, and returns what libbpf said meanwhile, too.
pub(crate) fn heard<T>(
    load: impl FnOnce() -> Result<T, libbpf_rs::Error>,
) -> (Result<T, libbpf_rs::Error>, String) {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Info, hear)));
    });
    SAID.set(Some(String::new()));
    let result = load();
    (result, SAID.take().unwrap_or_default())
}

/// A loaded program that outlives its object.
pub(crate) fn keep(program: &impl AsFd) -> Result<OwnedFd, LoadError> {
    program.as_fd().try_clone_to_owned().map_err(|error| LoadError::Other(error.into()))
}

/// The function in `extern (func ksym) 'NAME': not found in kernel or module BTFs`.
fn missing_function(said: &str) -> Option<&str> {
    let line = said.lines().find(|line| line.contains("not found in kernel or module BTFs"))?;
    line.split('\'').nth(1)
}

/// The last line of the verifier's log but its statistics.
pub(crate) fn verifier_s_reason(said: &str) -> Option<&str> {
    verifier_s_log(said)?.lines().map(str::trim).rev().find(is_telling)
}

/// The last lines of the verifier's log, at most `count`, in order, without its statistics. `said`
/// is libbpf's message with the log, or the log itself.
pub(crate) fn verifier_s_lines(said: &str, count: usize) -> Vec<String> {
    let log = verifier_s_log(said).unwrap_or(said);
    let last: Vec<&str> = log.lines().map(str::trim).rev().filter(is_telling).take(count).collect();
    last.into_iter().rev().map(str::to_owned).collect()
}

fn verifier_s_log(said: &str) -> Option<&str> {
    let (_, log) = said.split_once("-- BEGIN PROG LOAD LOG --")?;
    Some(log.split_once("-- END PROG LOAD LOG --")?.0)
}

/// Whether it is a line of the verifier's that is no statistics.
fn is_telling(line: &&str) -> bool {
    let statistics = ["processed ", "verification time", "stack depth", "libbpf: "];
    !line.is_empty() && !statistics.iter().any(|word| line.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use libbpf_cargo::SkeletonBuilder;
    use libbpf_rs::ObjectBuilder;
    use std::path::{Path, PathBuf};

    const EPERM: i32 = 1;
    const EAGAIN: i32 = 11;
    const ENOMEM: i32 = 12;
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;

    fn judged(said: &str, errno: i32) -> LoadError {
        LoadError::judge(said, libbpf_rs::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_missing_privilege_is_no_verdict_of_the_verifier_and_the_other_way_round() {
        assert!(matches!(judged("", EPERM), LoadError::NotPermitted));
        let failed = "libbpf: prog 'steer': BPF program load failed: Permission denied\n\
                      libbpf: prog 'steer': -- BEGIN PROG LOAD LOG --\n\
                      0: (bf) r6 = r1\n\
                      R0 !read_ok\n\
                      processed 2 insns (limit 1000000) max_states_per_insn 0\n\
                      -- END PROG LOAD LOG --\n";
        let refused = judged(failed, EACCES);
        assert_eq!(refused.to_string(), "the kernel's verifier refuses it: R0 !read_ok");
        for not_to_the_end in [EAGAIN, ENOMEM] {
            assert!(matches!(judged(failed, not_to_the_end), LoadError::Other(_)));
        }
        assert!(matches!(judged("libbpf: whatever", EINVAL), LoadError::Other(_)));
        let without_perfmon = failed.replace("R0 !read_ok", "R0 pointer -= pointer prohibited");
        assert!(matches!(judged(&without_perfmon, EACCES), LoadError::NotPermitted));
    }

    #[test]
    fn an_interrupted_load_is_tried_again_and_any_other_failure_is_final() {
        let after = |interruptions: usize, errno: i32| {
            let mut tries = 0;
            let result = Tries::new().explained(|_| {
                tries += 1;
                let errno = if tries > interruptions { errno } else { EAGAIN };
                if errno == 0 { Ok(()) } else { Err(libbpf_rs::Error::from_raw_os_error(errno)) }
            });
            (result, tries)
        };
        assert!(matches!(after(3, 0), (Ok(()), 4)));
        assert!(matches!(after(1, EPERM), (Err(LoadError::NotPermitted), 2)));
        assert!(matches!(after(usize::MAX, 0), (Err(LoadError::Other(_)), TRIES)));
    }

    /// Compiles the program `source` with `arguments` and loads it, explained.
    fn load(source: &Path, arguments: &[&str]) -> Result<(), LoadError> {
        let stem = source.file_stem().unwrap().to_string_lossy();
        let object = std::env::temp_dir().join(format!("nrw-{}-{stem}.o", std::process::id()));
        let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        SkeletonBuilder::new()
            .source(source)
            .obj(&object)
            .clang_args([&[headers.as_str(), "-mcpu=v3"], arguments].concat())
            .build()
            .unwrap();
        let bytes = std::fs::read(&object).unwrap();
        std::fs::remove_file(&object).unwrap();
        explained(|| ObjectBuilder::default().open_memory(&bytes)?.load().map(drop))
    }

    fn program(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/programs").join(name)
    }

    fn is_root() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
        if !root {
            println!("SKIPPED: loading BPF programs needs root");
        }
        root
    }

    #[test]
    fn a_kernel_function_that_is_not_there_is_named_and_costs_only_the_look_up() {
        if !is_root() {
            return;
        }
        // As on a kernel whose connection tracking is a module that is not loaded.
        let without = "-Dbpf_ct_release=bpf_ct_release_of_another_kernel";
        let looking_up = load(&program("steer_translated.bpf.c"), &[without]);
        assert!(
            matches!(&looking_up, Err(LoadError::Missing { function })
                if function == "bpf_ct_release_of_another_kernel"),
            "{looking_up:?}"
        );
        load(&program("steer.bpf.c"), &[without]).unwrap();
    }

    #[test]
    fn a_program_that_the_verifier_refuses_is_not_called_a_missing_privilege() {
        if !is_root() {
            return;
        }
        let source = std::env::temp_dir().join(format!("nrw-{}.bpf.c", std::process::id()));
        let text = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
                    SEC(\"xdp\") int out_of_bounds(struct xdp_md *ctx)\n\
                    { return *(int *)(long)ctx->data; }\n\
                    char LICENSE[] SEC(\"license\") = \"GPL\";\n";
        std::fs::write(&source, text).unwrap();
        let refused = load(&source, &[]);
        std::fs::remove_file(&source).unwrap();
        assert!(
            matches!(&refused, Err(LoadError::Refused { reason }) if reason.contains("packet")),
            "{refused:?}"
        );
    }
}
