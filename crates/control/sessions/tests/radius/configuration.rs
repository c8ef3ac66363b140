//! What a configuration of RADIUS may say.

use narrows_sessions::radius::attribute::{CALLING_STATION_ID, MIKROTIK_RATE_LIMIT};
use narrows_sessions::radius::packet::Type;
use narrows_sessions::radius::{Config, ConfigError, Reading};
use narrows_units::{Nanos, Rate};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_is_not_said_has_a_default() {
    let config = Config::parse(crate::common::CONFIG).unwrap();
    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["[::]:1813", "[::]:3799"]);
    assert_eq!(config.identity.to_string(), "User-Name");
    assert_eq!(config.silent, Nanos::from_secs(3_600));
    assert!(config.clients[0].accounting && !config.clients[0].coa);
    assert!(config.refuse_unsupported && !config.use_netmask);
    assert_eq!(config.rules[0].attribute, MIKROTIK_RATE_LIMIT);
}

#[test]
fn everything_can_be_said() {
    let more = "listen = [\"192.0.2.10:1813\"]\nidentity = \"Calling-Station-Id\"\nname = \"1\"\n\
                window = \"0s\"\nqueueing = \"fq_codel\"\n\
                limits = { sessions = 10, rate_min = \"64kbit\", shortest_ipv4 = 30 }\n";
    let rules = "[[rate]]\nattribute = \"4874.2\"\nas = \"down-kbps\"\n";
    let config = Config::parse(&format!("{more}{}{rules}", crate::common::CONFIG)).unwrap();
    assert_eq!(config.identity, CALLING_STATION_ID);
    assert_eq!(config.name, Some(Type::standard(1)));
    assert_eq!(config.limits.shortest, [30, 40]);
    assert_eq!(config.limits.rate_min, Rate::from_bits_per_sec(64_000));
    assert_eq!(config.rules[0].reading, Reading::DownKbps);
    assert_eq!(config.rules[0].attribute, Type::vendor(4_874, 2));
}

#[test]
fn the_client_with_the_longest_prefix_is_meant() {
    let config = Config::parse(
        "[[client]]\nname = \"all\"\nfrom = [\"10.0.0.0/8\"]\nsecret = \"tested secret\"\n\
         [[client]]\nname = \"one\"\nfrom = [\"10.1.2.3\", \"2001:db8::/64\"]\nsecret = \"tested secret\"\n",
    );
    let config = config.unwrap();
    let name = |ip: &str| config.client(ip.parse().unwrap()).map(|client| client.name.clone());
    assert_eq!(name("10.9.9.9").as_deref(), Some("all"));
    assert_eq!(name("10.1.2.3").as_deref(), Some("one"));
    assert_eq!(name("::ffff:10.1.2.3").as_deref(), Some("one"));
    assert_eq!(name("2001:db8::7").as_deref(), Some("one"));
    assert_eq!(name("192.0.2.1"), None);
}

#[test]
fn what_cannot_be_is_refused_with_the_key() {
    for (from, to, word) in [
        ("silent = \"1h\"", "silent = \"1 hour\"", "silent"),
        ("default_plan = \"basic\"", "default_plan = \"other\"", "[plans.other]"),
        ("\"10mbit\"", "\"10\"", "plans.basic.down"),
        ("\"10mbit\"", "\"900gbit\"", "plans.basic.down"),
        ("\"5mbit\"", "\"500mbit\"", "plans.fast.down_min"),
        ("secret = \"tested secret\"", "secret = \"short\"", "secret"),
        ("\"192.0.2.2\"", "\"192.0.2.1\"", "given twice"),
        ("\"192.0.2.2\"", "\"bng.example\"", "bng.example"),
        ("name = \"bng-2\"", "name = \"bng-1\"", "two are called"),
        ("name = \"bng-2\"", "name = \"bng-2\"\nallow = []", "allow"),
        ("silent", "identity = \"Username\"\nsilent", "Username"),
        ("silent", "limits = { sessions = 0 }\nsilent", "limits.sessions"),
        ("silent", "limits = { shortest_ipv4 = 0 }\nsilent", "shortest_ipv4"),
        ("silent", "listen = []\nsilent", "listen"),
        ("silent", "silence = \"1h\"\nsilent", "silence"),
    ] {
        assert!(crate::common::CONFIG.contains(from), "{from}");
        let error =
            Config::parse(&crate::common::CONFIG.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(word), "{to}: {error}");
    }
    assert!(Config::parse("").unwrap_err().to_string().contains("[[client]]"));
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let path = std::env::temp_dir().join(format!("nrw-radius-{}.toml", std::process::id()));
    std::fs::write(&path, crate::common::CONFIG).unwrap();
    let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o640);
    assert!(matches!(Config::read(&path), Err(ConfigError::Open(_))));
    mode(0o600);
    assert!(Config::read(&path).is_ok());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Config::read(&path), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn a_secret_is_never_printed() {
    let config = Config::parse(crate::common::CONFIG).unwrap();
    assert!(!format!("{config:?}").contains("tested secret"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", at in any::<prop::sample::Index>()) {
        let _ = Config::parse(&text);
        let mut changed = crate::common::CONFIG.to_owned();
        let at = at.index(changed.len());
        changed.insert_str(at, &text);
        let _ = Config::parse(&changed);
    }
}
