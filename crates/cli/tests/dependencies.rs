//! The rules of `deny.toml` for dependencies, checked without its tool: licences, sources,
//! versions.
//!
//! `cargo-deny` takes minutes to build, and its database of advisories needs a network, so `make
//! deny` is for releases. This test needs neither, and stops a change that adds what may not be
//! distributed. It also checks the list of the program's components (`dist/sbom`).

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The only allowed source of packages.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The packages that are built for this platform.
fn packages() -> Vec<Value> {
    let arguments = ["metadata", "--locked", "--offline", "--format-version=1"];
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).args(["--filter-platform", host()]);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages in {other}"),
    }
}

fn host() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "aarch64-unknown-linux-gnu",
        _ => "x86_64-unknown-linux-gnu",
    }
}

/// The licences that `deny.toml` allows to all crates, and the exceptions with their crates.
struct Allowed {
    all: Vec<String>,
    exceptions: Vec<(String, String)>,
}

impl Allowed {
    fn read() -> Self {
        let file: toml::Table = include_str!("../../../deny.toml").parse().unwrap();
        let licences = &file["licenses"];
        let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
        let list = |of: &toml::Value| -> Vec<String> {
            of["allow"].as_array().unwrap().iter().map(text).collect()
        };
        let exceptions = licences["exceptions"].as_array().unwrap().iter();
        let exceptions = exceptions
            .flat_map(|one| list(one).into_iter().map(|licence| (text(&one["crate"]), licence)));
        Self { all: list(licences), exceptions: exceptions.collect() }
    }

    /// The licences that are allowed to the crate `name`.
    fn to(&self, name: &str) -> Vec<String> {
        let own = self.exceptions.iter().filter(|(it, _)| it == name);
        self.all.iter().chain(own.map(|(_, licence)| licence)).cloned().collect()
    }
}

/// Whether `allowed` licences satisfy a licence expression (SPDX, or with the older `/`).
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any(&mut rest, allowed);
    assert!(rest.is_empty(), "{expression:?} cannot be read from {rest:?} on");
    met
}

fn any(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = all(rest, allowed);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        met |= all(rest, allowed);
    }
    met
}

fn all(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = one(rest, allowed);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &[String]) -> bool {
    if rest.first() == Some(&"(") {
        *rest = &rest[1..];
        let met = any(rest, allowed);
        assert_eq!(rest.first(), Some(&")"), "a bracket is open");
        *rest = &rest[1..];
        return met;
    }
    let words = if rest.get(1) == Some(&"WITH") { 3 } else { 1 };
    let (name, behind) = rest.split_at(words);
    *rest = behind;
    // "+" allows a later version of the licence, but does not require it.
    allowed.iter().any(|it| it == name.join(" ").trim_end_matches('+'))
}

#[test]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let allowed = Allowed::read();
    for package in packages().iter().filter(|package| !package["source"].is_null()) {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_met(licence, &allowed.to(name)), "{name} is under {licence:?}");
    }
}

#[test]
fn every_dependency_comes_from_the_registry_in_a_version_that_is_said() {
    for package in packages() {
        let source = package["source"].as_str();
        assert!(source.is_none_or(|it| it == REGISTRY), "{} is from {source:?}", package["name"]);
        if source.is_some() {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_any = dependency["req"] == "*" && dependency["path"].is_null();
            assert!(!is_any, "{} takes any {}", package["name"], dependency["name"]);
        }
    }
}

/// The output of `dist/sbom`.
fn bill_of_materials() -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/sbom");
    let output = Command::new(script).env("CARGO", env!("CARGO")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_bill_of_materials_lists_exactly_the_linked_crates() {
    let bill = bill_of_materials();
    let listed = bill["components"].as_array().unwrap();
    let (allowed, packages) = (Allowed::read(), packages());
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    for component in listed.iter().filter(|it| text(it, "purl").starts_with("pkg:cargo/")) {
        let (name, version) = (text(component, "name"), text(component, "version"));
        let package = packages
            .iter()
            .find(|it| text(it, "name") == name && text(it, "version") == version)
            .unwrap_or_else(|| panic!("{name} {version} is no dependency"));
        let licence = component["licenses"][0]["expression"].as_str().unwrap_or_default();
        assert!(is_met(licence, &allowed.to(&name)), "{name} is under {licence:?}");
        let checksum = text(&component["hashes"][0], "content");
        let is_from_registry = !package["source"].is_null();
        assert_eq!(checksum.len(), if is_from_registry { 64 } else { 0 }, "{name}: {checksum:?}");
    }

    let names: BTreeSet<String> = listed.iter().map(|it| text(it, "name")).collect();
    for inside in ["narrows-dataplane", "narrows-qdisc", "libbpf-sys", "hyper", "uplot", "preact"] {
        assert!(names.contains(inside), "{inside} is in the program");
    }
    for outside in ["narrows-testbed", "narrows-sim", "proptest", "syn", "libbpf-cargo"] {
        assert!(!names.contains(outside), "{outside} is not in the program");
    }

    let references: BTreeSet<String> = listed.iter().map(|it| text(it, "bom-ref")).collect();
    for dependency in bill["dependencies"].as_array().unwrap() {
        for on in dependency["dependsOn"].as_array().unwrap() {
            assert!(references.contains(on.as_str().unwrap()), "{on} is not listed");
        }
    }
}

#[test]
fn an_expression_of_licences_is_read_as_it_is_meant() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("MIT/GPL-3.0", true),
        ("MIT+", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND Apache-2.0 WITH LLVM-exception", true),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}
