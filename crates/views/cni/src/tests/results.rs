//! What is passed on of other plugins' results.

use crate::result::{on_the_host, passed_on};
use crate::version::Version;
use serde_json::json;

#[test]
fn interfaces_without_a_sandbox_are_on_the_host() {
    let previous = json!({"interfaces": [
        {"name": "cni0"}, {"name": "veth1", "sandbox": ""}, {"name": "eth0", "sandbox": "/n"}, 7,
    ]});
    assert_eq!(on_the_host(&previous), ["cni0", "veth1"]);
    for nothing in [json!({}), json!(null), json!([]), json!({"interfaces": {"name": "a"}})] {
        assert!(on_the_host(&nothing).is_empty());
    }
}

#[test]
fn a_result_stays_as_it_was_in_its_own_version() {
    for version in Version::ALL {
        let result = json!({
            "cniVersion": version.name(), "ips": [{"address": "10.0.0.2/24", "version": "4"}],
            "interfaces": [{"name": "veth1", "mtu": 1400, "socketPath": "/s"}], "routes": [],
            "later": {"words": 1},
        });
        assert_eq!(passed_on(&result, version).to_string(), result.to_string());
    }
}

#[test]
fn a_result_of_another_version_gets_the_form_of_the_configuration() {
    let new = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}, {"address": "fd::2/64"}]});
    let old = json!({"cniVersion": "0.4.0", "ips": [
        {"address": "10.0.0.2/24", "version": "4"}, {"address": "fd::2/64", "version": "6"},
    ]});
    assert_eq!(passed_on(&new, Version::V0_4_0), old);
    assert_eq!(passed_on(&old, Version::V1_0_0), new);
}
