//! Commands that need no instance, through the program: `setup`, `import` and `sim`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn narrows(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A temporary folder, removed when the test succeeds.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks the policy in `file` with the real parser.
fn is_accepted(file: &str) -> bool {
    let output = narrows(&["tc", "--policy", file, "qdisc", "show"]);
    output.status.success() && !output.stdout.is_empty()
}

#[test]
fn a_setup_without_a_terminal_names_the_options_that_it_needs() {
    let output = narrows(&["setup", "--down", "95mbit"]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("give --ports A,B --up RATE --link LINK"), "{said}");
}

#[test]
fn a_word_that_is_wrong_is_refused_with_what_to_type_instead() {
    let cases: [(&[&str], &str); 4] = [
        (&["run", "eth1", "eth2"], "Usage: narrows run --ports A,B [OPTIONS]"),
        (&["serve", "--listen", "9466"], "as 127.0.0.1:9466 or [::1]:9466"),
        (&["serve", "--listen", "127.0.0.1:80000"], "a port from 0 to 65535"),
        (&["import", "sqm", "--ports", "a b,c", "/dev/null"], "\"a b\" is no name of an interface"),
    ];
    for (words, hint) in cases {
        let output = narrows(words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(hint), "{words:?}: {said}");
    }
}

#[test]
fn a_dry_run_shows_doctor_and_policy_and_writes_nothing() {
    let folder = Folder::new("dry-run");
    let directory = folder.path("etc");
    let output = narrows(&[
        "setup",
        "--ports",
        "nrw-no-a",
        "nrw-no-b",
        "--down",
        "95mbit",
        "--up",
        "20mbit",
        "--link",
        "docsis",
        "--directory",
        &directory,
        "--dry-run",
    ]);
    let said = text(&output.stdout);
    // Such ports prevent a start, so it fails after it has shown everything.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("BLOCKER") && said.contains("nrw-no-a"), "{said}");
    assert!(
        said.contains("qdisc replace dev nrw-no-b root cake bandwidth 95mbit docsis"),
        "{said}"
    );
    assert!(said.contains("dry run: nothing was done"), "{said}");
    assert!(!Path::new(&directory).exists());
    let policy: String = said
        .lines()
        .filter(|line| line.trim_start().starts_with("qdisc "))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = folder.path("shown.tc");
    fs::write(&file, policy).unwrap();
    assert!(is_accepted(&file));
}

#[test]
fn a_blocked_setup_writes_nothing() {
    let folder = Folder::new("blocked");
    let directory = folder.path("etc");
    let output = narrows(&[
        "setup",
        "--ports",
        "nrw-no-a,nrw-no-b",
        "--down",
        "95mbit",
        "--up",
        "20mbit",
        "--link",
        "docsis",
        "--directory",
        &directory,
        "--yes",
    ]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("the host is not ready"));
    assert!(!Path::new(&directory).exists());
}

#[test]
fn a_wrong_file_of_health_checks_is_refused_with_the_number_of_the_line() {
    let folder = Folder::new("checks");
    let file = folder.path("checks");
    fs::write(&file, "# services\n-t 192.0.2.1:80 --http health\n").unwrap();
    let output = narrows(&["health", &file]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("checks: line 2: \"health\" is no path: it begins with /"), "{said}");
}

#[test]
fn an_import_prints_a_policy_that_is_accepted_and_a_report() {
    let folder = Folder::new("import");
    let file = folder.path("sqm");
    let sqm = "config queue\n option enabled '1'\n option interface 'wan'\n option download '90000'\n \
               option upload '9000'\n option script 'layer_cake.qos'\n option qdisc 'cake'\n";
    fs::write(&file, sqm).unwrap();
    let output = narrows(&["import", "sqm", &file, "--ports", "eth1,eth2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("download 90mbit through eth2, upload 9mbit through eth1")
    );
    let policy = folder.path("home.tc");
    fs::write(&policy, output.stdout).unwrap();
    assert!(is_accepted(&policy));
    assert_eq!(output.status.code(), Some(0));
    // What is left out is in the exit status.
    fs::write(&file, format!("{sqm} option linklayer 'sonet'\n")).unwrap();
    let partly = narrows(&["import", "sqm", &file, "--ports", "eth1,eth2"]);
    assert_eq!(partly.status.code(), Some(3));
    assert!(text(&partly.stderr).contains("warning: linklayer \"sonet\""));
    assert!(text(&partly.stdout).contains("# NOTE: linklayer"));
    let missing = narrows(&["import", "libreqos", &folder.path("no"), "--ports", "eth1,eth2"]);
    assert!(text(&missing.stderr).contains("ShapedDevices.csv"));
}

/// Whether the process `id` has a handler for SIGINT.
#[cfg(feature = "lab")]
fn hears_interrupts(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 0b10 != 0
}

#[test]
#[cfg(feature = "lab")]
fn an_interrupted_simulation_prints_the_runs_that_are_done() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_narrows"));
    // Many runs, so that the first one ends while others are left.
    command.args(["sim", "mqcake-skew", "--jobs", "1"]);
    let sim = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !hears_interrupts(sim.id()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let kill = format!("kill -INT {}", sim.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = sim.wait_with_output().unwrap();
    let [said, shown] = [&output.stderr, &output.stdout].map(|bytes| text(bytes));
    assert!(said.contains("interrupted: results of "), "{said}");
    assert!(shown.starts_with("mqcake-skew (simulated)"), "{shown}");
    assert_eq!(output.status.code(), Some(130));
}

const NARROWS: &str = env!("CARGO_BIN_EXE_narrows");

/// Commands that print much without an instance, each with an argument list.
const PRINTING: [&[&str]; 6] = [
    &["doctor", "nrw-no-a", "nrw-no-b"],
    &["--help"],
    &["run", "--help"],
    &["tc", "qdisc", "help"],
    &["import", "--help"],
    #[cfg(feature = "lab")]
    &["sim", "--list"],
];

/// `narrows` with its standard output as the shell's `redirection` leaves it.
fn redirected(words: &[&str], redirection: &str) -> std::process::Output {
    let script = format!("exec {NARROWS} {} {redirection}", words.join(" "));
    Command::new("sh").args(["-c", &script]).output().unwrap()
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for words in PRINTING {
        // The reader is gone before anything is written.
        let script = format!("(sleep 0.2; exec {NARROWS} {}) 2>&3 3>&- | true", words.join(" "));
        let output = Command::new("sh").args(["-c", &format!("{{ {script}; }} 3>&2")]).output();
        let said = text(&output.unwrap().stderr);
        assert!(!said.contains("panic") && !said.contains("Broken pipe"), "{words:?}: {said}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    for words in PRINTING {
        for redirection in ["> /dev/full", ">&-"] {
            let said = text(&redirected(words, redirection).stderr);
            assert!(!said.contains("panicked"), "{words:?} {redirection}: {said}");
        }
    }
}

#[test]
fn cores_that_are_not_there_are_refused_before_the_ports_are_looked_at() {
    const NOT_HERE: &str = "--cores: this process may not run on core";
    for (cores, code, why) in [
        ("1024", 1, NOT_HERE),
        ("0-1,1024", 1, NOT_HERE),
        ("0-8191", 1, NOT_HERE),
        ("4294967296", 2, "up to 8191"),
        ("18446744073709551615", 2, "up to 8191"),
        ("3-1", 2, "0,2-5"),
    ] {
        let output = narrows(&["run", "--ports", "nrw-no-a,nrw-no-b", "--cores", cores]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn an_import_for_one_port_twice_is_refused() {
    // The second direction would replace the first.
    for from in [["import", "sqm", "no-such-file"], ["import", "libreqos", "no-such-folder"]] {
        let output = narrows(&[&from[..], &["--ports", "eth1,eth1"]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("name two different interfaces"), "{said}");
    }
}

#[test]
fn options_about_workers_are_not_taken_silently_where_there_are_none() {
    let run = |words: &[&str]| {
        let output = narrows(&[&["run"], words].concat());
        (output.status.code(), text(&output.stderr).to_string())
    };
    let ports = ["--ports", "nrw-no-a,nrw-no-b", "--plane", "xdp"];
    let (code, said) = run(&[&ports[..], &["--busy-poll"]].concat());
    assert!(code == Some(1) && said.contains("Leave it out"), "{said}");
    let (_, said) = run(&[&ports[..], &["--frames", "2048", "--cores", "0"]].concat());
    for option in ["\nnote: --frames has no effect", "note: --cores has no effect"] {
        assert!(said.contains(option), "{said}");
    }
    let (code, said) = run(&[&ports[..], &["--xdp", "tcx", "--dispatcher"]].concat());
    assert!(code == Some(1) && said.contains("leave out --dispatcher"), "{said}");
    let (_, said) = run(&["--ports", "nrw-no-a,nrw-no-b", "--frames", "2048"]);
    assert!(!said.contains("no effect"), "{said}");
    let (code, said) = run(&["--plane", "host", "--ports", "nrw-no*", "--copy"]);
    assert!(code == Some(1) && said.contains("leave out --copy"), "{said}");
}

#[test]
fn numbers_that_are_text_until_a_policy_is_made_are_refused_then() {
    for rate in ["", "-1", "0", "inf", "nan", "1e400", "18446744073709551616gbit"] {
        let ports = ["setup", "--ports", "nrw-no-a", "nrw-no-b", "--link", "docsis", "--dry-run"];
        let rates = [format!("--down={rate}"), "--up=20mbit".to_owned()];
        let words: Vec<&str> = ports.into_iter().chain(rates.iter().map(String::as_str)).collect();
        let output = narrows(&words);
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{rate}: {said}");
        assert!(said.contains("--down"), "{rate}: {said}");
        assert!(!text(&output.stdout).contains("bandwidth"), "{rate} is in a policy");
    }
    for seed in ["", "-1", "1.5", "18446744073709551616", "inf"] {
        let output = narrows(&["sim", "fair-elephant", "--set", &format!("run.seed={seed}")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("run.seed") && said.contains("whole number"), "{said}");
    }
}

/// As readline calls it: with the line so far.
#[test]
fn completion_in_bash_knows_tc_s_words_and_the_commands_own() {
    let folder = std::env::temp_dir().join(format!("narrows-completion-{}", std::process::id()));
    let output = narrows(&["manual", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let script = folder.join("share/bash-completion/completions/narrows");
    let complete = |line: &str| {
        let call = format!(
            "source {}; narrows={}; COMP_LINE=\"$narrows {line}\"; COMP_POINT=${{#COMP_LINE}}; \
             COMP_WORDS=(narrows {line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
             _narrows_words narrows \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            env!("CARGO_BIN_EXE_narrows")
        );
        let output = std::process::Command::new("bash").args(["-c", &call]).output().unwrap();
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(complete("tc qdisc replace dev eth2 root ca"), "cake cake_mq carousel");
    assert_eq!(complete("tc -s qd"), "qdisc");
    assert_eq!(complete("statu"), "status");
    assert_eq!(complete("run --plan"), "--plane");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A literal of SQLite: how its files begin.
const DATABASE: &[u8] = b"SQLite format 3";

#[test]
fn only_the_program_of_the_views_has_a_database() {
    let has = |program: &str| {
        fs::read(program).unwrap().windows(DATABASE.len()).any(|bytes| bytes == DATABASE)
    };
    assert!(has(env!("CARGO_BIN_EXE_narrows-serve")));
    assert!(!has(env!("CARGO_BIN_EXE_narrows")), "a small box has no room for it: docs/install.md");
}

#[test]
fn the_views_are_asked_for_and_explained_by_narrows_itself() {
    let text = |arguments: &[&str]| {
        let output = narrows(arguments);
        text(&[output.stdout, output.stderr].concat())
    };
    assert!(text(&["serve", "--help"]).contains("--write-tokens"));
    assert!(text(&["history", "worst", "--help"]).contains("--kind"));
    let unknown = text(&["history", "--file", "/nonexistent/history.sqlite", "list"]);
    assert!(unknown.contains("narrows serve --history FILE"), "from the other program: {unknown}");
}
