//! The commands, as far as they need no network.

mod configurations;
mod properties;
mod results;

use crate::{Answer, CniError, Config, Limits, run, set};
use serde_json::{Value, json};

/// What the runtime gets for `command` with `config` and the variables of a container.
fn answer(command: &str, config: &[u8]) -> Answer {
    let var = |name: &str| match name {
        "CNI_COMMAND" => Some(command.to_owned()),
        "CNI_CONTAINERID" => Some("c1".to_owned()),
        "CNI_NETNS" => Some("/proc/self/nothing".to_owned()),
        "CNI_IFNAME" => Some("eth0".to_owned()),
        _ => None,
    };
    run(&var, config)
}

/// The code and the message of a failure.
#[track_caller]
fn failure(answer: &Answer) -> (u64, String) {
    assert_eq!(answer.status, 1, "{answer:?}");
    let error: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert!(error["cniVersion"].is_string(), "{error}");
    (error["code"].as_u64().unwrap(), error["msg"].as_str().unwrap().to_owned())
}

fn limits(mut config: Value) -> Result<Limits, CniError> {
    config["cniVersion"] = json!("1.0.0");
    Config::parse(config.to_string().as_bytes()).map(|config| config.limits)
}

/// The commands for `veth0`.
#[track_caller]
fn words(config: Value) -> String {
    set("veth0", &limits(config).unwrap())
}

#[track_caller]
fn refusal(config: Value) -> String {
    let error = limits(config).unwrap_err();
    assert_eq!(error.code(), 7, "{error}");
    error.to_string()
}

#[test]
fn without_a_command_the_program_says_what_it_is() {
    let answer = run(&|_| None, &b""[..]);
    assert!(answer.status == 0 && answer.stdout.contains("Examples:"));
    assert!(answer.stdout.lines().all(|line| line.len() <= 90));
}

#[test]
fn version_names_all_versions_in_that_of_the_caller() {
    let said = |input: &str| -> Value {
        serde_json::from_str(&answer("VERSION", input.as_bytes()).stdout).unwrap()
    };
    let versions = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    assert_eq!(
        said(r#"{"cniVersion":"0.4.0"}"#),
        json!({"cniVersion": "0.4.0", "supportedVersions": versions})
    );
    assert_eq!(said("")["supportedVersions"], versions);
}

#[test]
fn failures_have_the_numbers_of_cni() {
    for (command, config, code, what) in [
        ("ADD", r#"{"cniVersion":"0.2.0"}"#, 1, "0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"),
        ("ADD", "{}", 1, "cniVersion \"0.1.0\""),
        ("CHECK", r#"{"cniVersion":"0.3.1"}"#, 1, "since 0.4.0"),
        ("GC", r#"{"cniVersion":"1.0.0"}"#, 1, "since 1.1.0"),
        ("STATUS", r#"{"cniVersion":"1.0.0"}"#, 1, "since 1.1.0"),
        ("EAT", r#"{"cniVersion":"1.0.0"}"#, 4, "CNI_COMMAND is \"EAT\""),
        ("ADD", "{", 6, "standard input"),
        ("ADD", r#"{"cniVersion":"1.0.0","ingressRate":-1}"#, 6, "u64"),
        ("ADD", r#"{"cniVersion":"1.0.0"}"#, 7, "no prevResult"),
        ("CHECK", r#"{"cniVersion":"1.0.0","prevResult":null}"#, 7, "no prevResult"),
        ("ADD", r#"{"cniVersion":"1.0.0","waitSeconds":61}"#, 7, "from 0 to 60"),
        (
            "ADD",
            r#"{"cniVersion":"1.0.0","prevResult":{},"ingressRate":1000000}"#,
            101,
            "/proc/self/nothing cannot be opened",
        ),
    ] {
        let (found, said) = failure(&answer(command, config.as_bytes()));
        assert!(found == code && said.contains(what), "{command} {config}: {found} {said}");
    }
}

#[test]
fn a_failure_is_said_in_the_version_of_the_configuration() {
    let answer = answer("ADD", br#"{"cniVersion":"0.4.0"}"#);
    let error: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(error["cniVersion"], "0.4.0");
}

#[test]
fn variables_that_are_missing_or_wrong_are_named() {
    let with = |id: &'static str, interface: &'static str, namespace: &'static str| {
        let var = move |name: &str| {
            let value = match name {
                "CNI_COMMAND" => "ADD",
                "CNI_CONTAINERID" => id,
                "CNI_IFNAME" => interface,
                "CNI_NETNS" => namespace,
                _ => return None,
            };
            Some(value.to_owned())
        };
        failure(&run(&var, &br#"{"cniVersion":"1.0.0"}"#[..]))
    };
    for (id, interface, namespace, what) in [
        ("", "", "", "CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS"),
        ("c", "eth0", "", "CNI_NETNS"),
        ("-c", "eth0", "/n", "CNI_CONTAINERID is \"-c\""),
        ("c d", "eth0", "/n", "CNI_CONTAINERID is \"c d\""),
        ("c", "a/b", "/n", "CNI_IFNAME is \"a/b\""),
        ("c", "..", "/n", "CNI_IFNAME"),
        ("c", "sixteen-bytes-or", "/n", "CNI_IFNAME"),
    ] {
        let (code, said) = with(id, interface, namespace);
        assert!(code == 4 && said.contains(what), "{code} {said}");
    }
}

#[test]
fn input_has_a_bound() {
    let long = vec![b' '; (1 << 20) + 1];
    let (code, said) = failure(&answer("ADD", &long));
    assert!(code == 5 && said.contains("1024 KiB"), "{said}");
    assert_eq!(failure(&answer("ADD", &long[1..])).0, 6);
}

#[test]
fn del_succeeds_whatever_is_left_and_says_what_was_wrong() {
    for config in [
        "{",
        r#"{"cniVersion":"1.0.0"}"#,
        r#"{"cniVersion":"1.0.0","prevResult":{},"ingressRate":1000000}"#,
    ] {
        let answer = answer("DEL", config.as_bytes());
        assert!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
        assert_eq!(answer.stderr.is_empty(), config != "{", "{answer:?}");
    }
}

#[test]
fn a_pod_without_limits_needs_no_host_plane() {
    let result = json!({"cniVersion": "1.0.0", "interfaces": [], "dns": {"search": ["a"]}});
    let config = json!({"cniVersion": "1.0.0", "name": "n", "prevResult": result}).to_string();
    let added = answer("ADD", config.as_bytes());
    assert_eq!(added.stdout, format!("{result}\n"));
    assert_eq!(answer("CHECK", config.as_bytes()), Answer::default());
}
