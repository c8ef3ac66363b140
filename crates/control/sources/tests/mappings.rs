//! Mappings and records: what becomes of which record.

use narrows_directory::Queueing;
use narrows_sources::files::{Format, Main, load};
use narrows_sources::{Converted, Mapping, SourceError, convert};
use proptest::prelude::*;
use std::path::Path;

fn convert_text(mapping: &str, format: Format, text: &str) -> Result<Converted, SourceError> {
    let mapping = Mapping::parse(mapping)?;
    let main = Main { title: "input", text: text.as_bytes() };
    convert(&mapping, &load(&mapping, format, Some(&main), Path::new("/nowhere"))?)
}

fn csv(mapping: &str, text: &str) -> Converted {
    convert_text(mapping, Format::Csv, text).unwrap()
}

fn json(mapping: &str, text: &str) -> Converted {
    convert_text(mapping, Format::Json, text).unwrap()
}

fn faults(converted: &Converted) -> Vec<String> {
    converted.faults.kept().iter().map(ToString::to_string).collect()
}

fn refused(mapping: &str) -> String {
    Mapping::parse(mapping).unwrap_err().to_string()
}

/// The smallest mapping.
const SMALL: &str = "[subscribers]\nid = \"id\"\ndownload = \"down\"\nupload = \"up\"\n\
                     unit = \"mbit\"\naddresses = \"ip\"\n";

#[test]
fn the_example_for_a_table_gives_subscribers_sites_and_plans() {
    let converted = csv(
        include_str!("../../../../examples/sync/csv.toml"),
        "Customer No,Name,Tower,Region,Tariff,IP addresses,Phone,State\n\
         1001,Ann Smith,North,Hills,Home 50,\"10.0.0.1, 2001:db8:1::/56\",555-1,active\n\
         1002,Bob's Bakery,North,Hills,Business 200,10.0.1.0/24,,active\n\
         1003,Gone,North,Hills,Home 50,10.0.0.3,,cancelled\n\
         1004,Old Plan,South,Hills,Home 5,10.0.0.4,,active\n",
    );
    let people = &converted.directory.subscribers;
    assert_eq!(people.keys().collect::<Vec<_>>(), ["1001", "1002"]);
    let ann = &people["1001"];
    assert_eq!((ann.name.as_str(), ann.site.as_deref()), ("Ann Smith", Some("North")));
    assert_eq!(ann.plan.name.as_deref(), Some("Home 50"));
    assert_eq!(ann.plan.ceiling.map(|rate| rate.bits_per_sec()), [50_000_000, 10_000_000]);
    assert_eq!(ann.addresses.len(), 2);
    assert_eq!(ann.labels["phone"], "555-1");
    assert_eq!(people["1002"].plan.assured.map(|rate| rate.bits_per_sec()), [50_000_000; 2]);
    assert!(people["1002"].labels.is_empty());
    assert_eq!(converted.directory.sites["North"].parent.as_deref(), Some("Hills"));
    assert_eq!(converted.directory.sites["Hills"].parent, None);
    let faults = faults(&converted);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(
        faults[0],
        "input, line 5, subscriber 1004: its plan \"Home 5\" is not among [plans]: the \
         subscriber is left out"
    );
}

#[test]
fn the_example_for_a_document_joins_its_lists() {
    let converted = json(
        include_str!("../../../../examples/sync/json.toml"),
        r#"{
            "customers": [
                {"number": 7, "status": "active", "first_name": "Ann", "last_name": "Smith",
                 "tariff": "t1", "access": {"tower": "n", "ipv4": "10.0.0.1",
                 "ipv6": ["2001:db8:1::/56", "2001:db8:2::/56"]}, "queue": "fq_codel"},
                {"number": 8, "status": "active", "last_name": "Jones", "tariff": "t9",
                 "access": {}},
                {"number": 9, "status": "paused"}
            ],
            "tariffs": [{"id": "t1", "name": "Fast", "rates": {"down": 50000, "up": "10000"}}],
            "network": {"towers": [
                {"code": "n", "name": "North", "uplink_of": "core", "capacity": 500},
                {"code": "core", "name": "Core", "capacity": 0},
                {"code": "x", "name": "X", "uplink_of": "gone", "capacity": "?"}
            ]}
        }"#,
    );
    let ann = &converted.directory.subscribers["7"];
    assert_eq!((ann.name.as_str(), ann.site.as_deref()), ("Ann Smith", Some("n")));
    assert_eq!(ann.plan.name.as_deref(), Some("Fast"));
    assert_eq!(ann.plan.ceiling.map(|rate| rate.bits_per_sec()), [50_000_000, 10_000_000]);
    assert_eq!(ann.plan.queueing, [Queueing::FqCodel; 2]);
    assert_eq!(ann.addresses.len(), 3);
    let sites = &converted.directory.sites;
    assert_eq!(sites["n"].parent.as_deref(), Some("core"));
    assert_eq!(sites["n"].capacity[0].map(|rate| rate.bits_per_sec()), Some(500_000_000));
    assert_eq!(sites["core"].capacity, [None; 2]);
    let faults = faults(&converted);
    assert_eq!(faults.len(), 4, "{faults:#?}");
    assert!(faults[2].contains("site above it, \"gone\", is not there"), "{}", faults[2]);
    assert_eq!(
        faults[3],
        "input, record 2, subscriber 8: its download rate is missing: the subscriber is left out"
    );
}

#[test]
fn a_record_without_what_it_needs_is_named_with_its_line() {
    let converted = csv(
        SMALL,
        "id,down,up,ip\n,5,5,10.0.0.1\na,,5,10.0.0.1\nb,\"5,5\",5,\nc,5,0,\nd,5,5,10.0.0.9/8\n\
         e,5,5,10.0.0.1\nf,5,5,10.0.0.1\ne,5,5,10.0.0.2\n",
    );
    let people = converted.directory.subscribers.keys().collect::<Vec<_>>();
    assert_eq!(people, ["d", "e", "f"]);
    let faults = faults(&converted);
    let expected = [
        "line 2: it has no identity",
        "line 3, subscriber a: its download rate is missing",
        "line 4, subscriber b: its download rate \"5,5\" is no rate: write a decimal point",
        "line 5, subscriber c: its upload rate is less than 1 kbit/s",
        "line 6, subscriber d: \"10.0.0.9/8\" has bits behind its prefix",
        "line 8, subscriber f: 10.0.0.1/32 also belongs to input, line 7, subscriber e",
        "line 9, subscriber e: its identity is also that of input, line 7, subscriber e",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:#?}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.contains(expected), "{fault} is not {expected}");
    }
}

#[test]
fn a_field_has_alternatives_defaults_constants_and_texts() {
    let mapping = r#"
        [subscribers]
        id = { text = "isp-{id}" }
        name = ["nick", "$.person.name", { value = "unnamed" }]
        site = { path = "tower", default = "main" }
        download = ["down", { value = 10 }]
        upload = { value = "5mbit" }
        unit = "mbit"
        addresses = { path = "ips", separator = "|", host = true }
        labels.vlan = "vlan"
    "#;
    let converted = json(
        mapping,
        r#"[{"id": 1, "person": {"name": "Ann"}, "ips": "10.0.0.5/24|10.0.0.6", "vlan": 7},
            {"id": 2, "nick": "bo", "tower": "t", "down": 20.5, "ips": null, "person": {}}]"#,
    );
    assert!(converted.faults.kept().is_empty(), "{:?}", converted.faults);
    let people = &converted.directory.subscribers;
    let (ann, bo) = (&people["isp-1"], &people["isp-2"]);
    assert_eq!((ann.name.as_str(), bo.name.as_str()), ("Ann", "bo"));
    assert_eq!((ann.site.as_deref(), bo.site.as_deref()), (Some("main"), Some("t")));
    let rates = bo.plan.ceiling.map(|rate| rate.bits_per_sec());
    assert_eq!(rates, [20_500_000, 5_000_000]);
    assert_eq!(ann.addresses.iter().map(|prefix| prefix.bits).collect::<Vec<_>>(), [32, 32]);
    assert_eq!(ann.labels["vlan"], "7");
}

#[test]
fn an_unknown_key_is_an_error_with_its_line() {
    for (text, line, what) in [
        ("[subscribers]\nid = \"a\"\nspeed = \"b\"\n", 3, "unknown field `speed`"),
        ("[subscribers]\nid = { pth = \"a\" }\n", 2, "unknown field `pth`"),
        ("[lists.a]\nfiel = \"x\"\n[subscribers]\nid = \"a\"\n", 2, "unknown field `fiel`"),
        ("[subscribers]\nid = \"$.[\"\n", 2, "is no JSONPath"),
        ("[subscribers]\nid = 5\n", 2, "invalid type"),
        ("[subscribers]\nid = { list = \"a\", path = \"b\" }\n", 2, "needs list"),
        ("[plans.a]\ndownload = \"5\"\nupload = \"5mbit\"\n", 2, "with a unit"),
        ("[subscribers]\nid = \"a\"\nwhere = \"a = b\"\n", 3, "is no condition"),
        ("[subscribers]\nid = \"a\"\nunit = \"kbps\"\n", 3, "unknown variant"),
    ] {
        let why = refused(text);
        assert!(why.contains(&format!("line {line}: ")) && why.contains(what), "{text}: {why}");
    }
}

#[test]
fn a_mapping_that_cannot_work_is_refused_before_anything_is_read() {
    let with = |more: &str| format!("{SMALL}{more}");
    for (text, what) in [
        ("[subscribers]\nid = \"a\"\n".to_owned(), "needs download and upload"),
        (SMALL.replace("unit = \"mbit\"\n", ""), "needs unit"),
        ("[subscribers]\nid = \"a\"\nplan = \"p\"\n".to_owned(), "nothing says their rates"),
        (with("name = { list = \"x\", key = \"a\", with = \"b\", path = \"c\" }"), "[lists.x]"),
        (with("name = { path = \"x\", host = true }"), "host is for addresses"),
        (with("site_parent = \"x\""), "beside site"),
        (with("[http]\nbase = \"https://x/\""), "[lists.records]"),
        (with("[lists.records]\npath = \"x\""), "add [http]"),
        (with("[lists.records]\npages = { by = \"link\" }"), "need path"),
        (with("[http]\nbase = \"x\"\n[lists.records]\npath = \"x\""), "is an address"),
    ] {
        let why = refused(&text);
        assert!(why.contains(what), "{text}: {why}");
    }
}

#[test]
fn sites_above_themselves_are_untied() {
    let mapping = format!("{SMALL}[lists.records]\n[sites]\nid = \"id\"\nparent = \"up\"\n");
    let converted = csv(&mapping, "id,down,up,ip\na,1,b,\nb,1,c,\nc,1,a,\nd,1,c,\ne,1,e,\n");
    let sites = &converted.directory.sites;
    let tops = sites.iter().filter(|(_, site)| site.parent.is_none());
    assert_eq!(tops.map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["c", "e"]);
    let circles = faults(&converted).iter().filter(|fault| fault.contains("also below")).count();
    assert_eq!(circles, 2);
}

/// All that is promised of whatever comes out.
fn is_sound(converted: &Converted) {
    assert_eq!(converted.directory.check(), [""; 0]);
    for (id, subscriber) in &converted.directory.subscribers {
        assert!(!id.chars().chain(subscriber.name.chars()).any(char::is_control));
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u32..9).prop_map(Value::from),
        "[a-e10./:, \n]{0,12}".prop_map(Value::from),
    ];
    let key = || prop_oneof![Just("id"), Just("down"), Just("up"), Just("ip"), Just("site")];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|members| members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_as_a_mapping_are_read_or_refused(text in "\\PC{0,200}") {
        let _read_or_refused = Mapping::parse(&text);
    }

    #[test]
    fn any_text_as_a_path_is_read_or_refused(text in "[$@.?\\[\\]()'a0*:,!&|=<>\" -]{0,60}") {
        let _read_or_refused = narrows_sources::mapping::Path::parse(&text);
        let _read_or_refused = narrows_sources::mapping::Where::parse(&text);
    }

    #[test]
    fn any_table_gives_a_sound_directory(text in "[a-e0-9,\n\"./: é]{0,300}") {
        let mapping = format!("{SMALL}site = \"site\"\nsite_parent = \"above\"\n");
        let text = format!("id,down,up,ip,site,above\n{text}");
        if let Ok(converted) = convert_text(&mapping, Format::Csv, &text) {
            is_sound(&converted);
        }
    }

    #[test]
    fn any_rows_give_a_sound_directory(
        rows in prop::collection::vec(("[a-e]", 0_u8..9, "10.0.0.[0-9]", "[p-t]", "[p-t]?"), 0..30)
    ) {
        let mapping = format!("{SMALL}site = \"site\"\nsite_parent = \"above\"\n");
        let mut text = "id,down,up,ip,site,above\n".to_owned();
        for (id, down, ip, site, above) in rows {
            text.push_str(&format!("{id},{down},5,{ip},{site},{above}\n"));
        }
        is_sound(&csv(&mapping, &text));
    }

    #[test]
    fn any_document_gives_a_sound_directory(document in any_json()) {
        let mapping = format!(
            "{SMALL}site = \"$..site\"\nname = {{ list = \"records\", key = \"up\", with = \
             \"id\", path = \"$.*\" }}\n[sites]\nid = \"site\"\nparent = \"$.up[*]\"\n\
             [lists.records]\nrecords = \"$..[?@.id]\"\n"
        );
        if let Ok(converted) = convert_text(&mapping, Format::Json, &document.to_string()) {
            is_sound(&converted);
        }
    }
}
