//! The worked examples, against servers that answer in the shape of these systems. The shapes are
//! made from their public documents; no provider's data are in them.

mod server;

use narrows_sources::http::{Pace, load};
use narrows_sources::mapping::Mapping;
use narrows_sources::{Converted, convert, netbox};
use server::{Asked, Said, Server, json, status};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// What the mapping makes of the server's answers, with a token.
fn sync(mut mapping: Mapping, server: &Server, base: &str, token: &str) -> Converted {
    mapping.ask_at(&format!("http://{}{base}", server.address)).unwrap();
    let file = std::env::temp_dir().join(format!("nrw-systems-{}", server.address.port()));
    std::fs::write(&file, token).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let pace = Pace { pause: Duration::from_millis(1) };
    let lists = load(&mapping, Path::new("/"), Some(&file), &pace);
    std::fs::remove_file(&file).unwrap();
    convert(&mapping, &lists.unwrap()).unwrap()
}

/// One line for each subscriber.
fn shown(converted: &Converted) -> Vec<String> {
    let people = converted.directory.subscribers.iter();
    let lines = people.map(|(id, subscriber)| {
        let rates = subscriber.plan.ceiling.map(|rate| rate.bits_per_sec() / 1_000);
        let addresses: Vec<String> = subscriber
            .addresses
            .iter()
            .map(|address| format!("{}/{}", address.ip, address.bits))
            .collect();
        format!(
            "{id} {} at {} has {} {}/{} kbit/s: {}",
            subscriber.name,
            subscriber.site.as_deref().unwrap_or("-"),
            subscriber.plan.name.as_deref().unwrap_or("-"),
            rates[0],
            rates[1],
            addresses.join(" ")
        )
    });
    lines.collect()
}

fn faults(converted: &Converted) -> Vec<String> {
    converted.faults.kept().iter().map(ToString::to_string).collect()
}

/// Answers if a header has the token.
fn with_token(asked: &Asked, header: &str, token: &str, answer: impl Fn(&str) -> Said) -> Said {
    if asked.header(header) == Some(token) { answer(&asked.path) } else { status(401) }
}

#[test]
fn uisp_gives_client_sites_with_the_addresses_of_their_devices() {
    let server = Server::start(|asked| {
        with_token(asked, "x-auth-token", "t0ken", |path| match path {
            "/nms/api/v2.1/sites" => json(
                r#"[
                {"id": "s-1", "identification": {"id": "s-1", "type": "site", "name": "North",
                  "status": "active", "parent": null, "suspended": false},
                 "qos": {"enabled": false, "downloadSpeed": null, "uploadSpeed": null}},
                {"id": "s-2", "identification": {"id": "s-2", "type": "site", "name": "Hill",
                  "parent": {"id": "s-1", "type": "site", "name": "North"}}},
                {"id": "c-1", "identification": {"id": "c-1", "type": "endpoint",
                  "name": "Smith, Ann", "parent": {"id": "s-2", "type": "site"},
                  "suspended": false},
                 "qos": {"enabled": true, "downloadSpeed": 50000000, "uploadSpeed": 10000000},
                 "ucrm": {"client": {"id": "17", "name": "Ann Smith"},
                  "service": {"id": "31", "name": "Home 50", "status": 1, "tariffId": "4",
                  "trafficShapingOverrideEnabled": false}}},
                {"id": "c-2", "identification": {"id": "c-2", "type": "endpoint",
                  "name": "Jones", "parent": {"id": "s-1"}, "suspended": false},
                 "qos": {"enabled": false, "downloadSpeed": null, "uploadSpeed": null},
                 "ucrm": null},
                {"id": "c-3", "identification": {"id": "c-3", "type": "endpoint",
                  "name": "Gone", "parent": {"id": "s-1"}, "suspended": true}}
                ]"#,
            ),
            "/nms/api/v2.1/devices" => json(
                r#"[
                {"identification": {"id": "d-1", "role": "station", "site": {"id": "c-1"}},
                 "ipAddress": "10.20.0.17/24"},
                {"identification": {"id": "d-2", "role": "router", "site": {"id": "c-1"}},
                 "ipAddress": "10.20.0.18"},
                {"identification": {"id": "d-3", "role": "ap", "site": {"id": "s-2"}},
                 "ipAddress": "10.20.0.1/24"},
                {"identification": {"id": "d-4", "role": "station", "site": null},
                 "ipAddress": null}
                ]"#,
            ),
            _ => status(404),
        })
    });
    let mapping = Mapping::parse(include_str!("../../../../examples/sync/uisp.toml")).unwrap();
    let converted = sync(mapping, &server, "/nms/api/v2.1/", "t0ken");
    assert_eq!(
        shown(&converted),
        ["c-1 Ann Smith at s-2 has Home 50 50000/10000 kbit/s: 10.20.0.17/32 10.20.0.18/32"]
    );
    assert_eq!(converted.directory.sites["s-2"].parent.as_deref(), Some("s-1"));
    assert_eq!(
        faults(&converted),
        ["sites, record 4, subscriber c-2: its download rate is missing: the subscriber is left \
          out"]
    );
}

#[test]
fn splynx_gives_services_with_the_rates_of_their_tariffs() {
    let server = Server::start(|asked| {
        with_token(asked, "authorization", "Basic a2V5OnNlY3JldA==", |path| match path {
            "/api/2.0/admin/customers/customer/0/internet-services" => json(
                r#"[
                {"id": 501, "customer_id": 12, "tariff_id": 3, "status": "active",
                 "login": "ann", "router_id": 2, "ipv4": "10.1.0.5", "ipv4_route": "",
                 "ipv6": "", "ipv6_delegated": "2001:db8:5::/56"},
                {"id": 502, "customer_id": 12, "tariff_id": 4, "status": "active",
                 "login": "ann2", "router_id": 0, "ipv4": "10.1.0.6",
                 "ipv4_route": "10.9.0.0/29", "ipv6": "", "ipv6_delegated": ""},
                {"id": 503, "customer_id": 13, "tariff_id": 9, "status": "active",
                 "login": "bob", "router_id": 2, "ipv4": "10.1.0.7"},
                {"id": 504, "customer_id": 13, "tariff_id": 3, "status": "stopped"}
                ]"#,
            ),
            "/api/2.0/admin/customers/customer" => json(
                r#"[{"id": 12, "name": "Ann Smith", "status": "active", "login": "ann"},
                    {"id": 13, "name": "Bob Jones", "status": "active", "login": "bob"}]"#,
            ),
            "/api/2.0/admin/tariffs/internet" => json(
                r#"[{"id": 3, "title": "Home 50", "speed_download": 50000, "speed_upload": 10000},
                    {"id": 4, "title": "Pro", "speed_download": 200000, "speed_upload": 200000}]"#,
            ),
            "/api/2.0/admin/networking/routers" => {
                json(r#"[{"id": 2, "title": "North", "ip": "10.0.0.2"}]"#)
            }
            _ => status(404),
        })
    });
    let mapping = Mapping::parse(include_str!("../../../../examples/sync/splynx.toml")).unwrap();
    let converted = sync(mapping, &server, "/api/2.0/", "key:secret");
    assert_eq!(
        shown(&converted),
        [
            "501 Ann Smith at 2 has Home 50 50000/10000 kbit/s: 10.1.0.5/32 2001:db8:5::/56",
            "502 Ann Smith at - has Pro 200000/200000 kbit/s: 10.1.0.6/32 10.9.0.0/29",
        ]
    );
    assert_eq!(converted.directory.subscribers["501"].labels["customer"], "12");
    assert_eq!(converted.directory.sites["2"].name, "North");
    assert_eq!(faults(&converted).len(), 1);
    let services = &server.asked();
    let services = services.iter().find(|asked| asked.path.ends_with("services")).unwrap();
    let query = services.query.replace("%5B", "[").replace("%5D", "]");
    assert_eq!(query, "main_attributes[status]=active");
}

#[test]
fn sonar_gives_accounts_page_by_page() {
    let server = Server::start(|asked| {
        with_token(asked, "authorization", "Bearer t0ken", |_| {
            assert_eq!(asked.method, "POST");
            let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
            assert!(body["query"].as_str().unwrap().contains("accounts(paginator: $pages)"));
            let pages = &body["variables"]["pages"];
            let size = pages["records_per_page"].as_u64().unwrap();
            let from = (pages["page"].as_u64().unwrap() - 1) * size;
            let accounts = (from..(from + size).min(250)).map(|id| {
                let active = id != 3;
                let speeds = r#"{"download_speed_kilobits_per_second": 100000,
                    "upload_speed_kilobits_per_second": 20000}"#;
                format!(
                    r#"{{"id": "{id}", "name": "Account {id}",
                    "account_status": {{"activates_account": {active}}},
                    "account_services": {{"entities": [
                        {{"service": {{"name": "Discount", "data_service_detail": null}}}},
                        {{"service": {{"name": "Gold", "data_service_detail": {speeds}}}}}]}},
                    "addresses": {{"entities": [{{"inventory_items": {{"entities": [{{
                        "ip_assignments": {{"entities": [{{"subnet": "10.3.{}.{}"}}]}},
                        "inventory_model_field_data": {{"entities": [{{
                            "ip_assignments": {{"entities": []}}}}]}}}}]}}}}]}}}}"#,
                    id / 250,
                    id % 250 + 1
                )
            });
            let accounts: Vec<String> = accounts.collect();
            json(format!(
                r#"{{"data": {{"accounts": {{"entities": [{}],
                    "page_info": {{"total_count": 250}}}}}}}}"#,
                accounts.join(",")
            ))
        })
    });
    let mapping = Mapping::parse(include_str!("../../../../examples/sync/sonar.toml")).unwrap();
    let converted = sync(mapping, &server, "/api/", "t0ken");
    assert_eq!(faults(&converted), [""; 0]);
    assert_eq!(converted.directory.subscribers.len(), 249);
    assert_eq!(server.asked().len(), 2);
    assert_eq!(shown(&converted)[0], "0 Account 0 at - has Gold 100000/20000 kbit/s: 10.3.0.1/32");
}

#[test]
fn powercode_gives_customers_with_the_service_of_their_equipment() {
    let server = Server::start(|asked| {
        let fields: Vec<&str> = asked.body.split('&').collect();
        if asked.path != "/api/preseem/index.php" || !fields.contains(&"apiKey=k%2Fy") {
            return status(403);
        }
        match fields.iter().find_map(|field| field.strip_prefix("action=")) {
            Some("list_customers") => json(
                r#"[
                {"id": 1, "name": "The provider", "status": "Active", "equipment": []},
                {"id": 40, "name": "Ann Smith", "company_name": "", "status": "Active",
                 "equipment": [
                  {"id": 900, "name": "CPE", "type": "CPE", "ip_address": "10.4.0.9",
                   "mac_address": "02:00:00:00:00:01", "service_id": 7, "parent_id": 70},
                  {"id": 901, "name": "Router", "type": "Router", "ip_address": "10.4.0.10",
                   "service_id": "7", "parent_id": null},
                  {"id": 902, "name": "Phone", "type": "VoIP", "ip_address": "10.4.0.11",
                   "service_id": null, "parent_id": null}]},
                {"id": 41, "name": "", "company_name": "Bakery", "status": "Active",
                 "equipment": [{"id": 903, "ip_address": "10.4.0.12", "service_id": 8}]},
                {"id": 42, "name": "Gone", "status": "Not Active", "equipment": []}
                ]"#,
            ),
            Some("list_services") => json(
                r#"[{"id": "7", "name": "Home", "rate_down": "50000", "rate_up": "10000"},
                    {"id": "8", "name": "Mail only", "rate_down": null, "rate_up": null}]"#,
            ),
            Some("list_sites") => json(
                r#"[{"id": 5, "name": "North", "equipment": [
                    {"id": 70, "name": "AP 1", "type": "Access Point"}]}]"#,
            ),
            _ => status(400),
        }
    });
    let mapping = Mapping::parse(include_str!("../../../../examples/sync/powercode.toml")).unwrap();
    let converted = sync(mapping, &server, "/api/preseem/", "k/y");
    assert_eq!(
        shown(&converted),
        ["40 Ann Smith at 5 has Home 50000/10000 kbit/s: 10.4.0.9/32 10.4.0.10/32"]
    );
    let faults = faults(&converted);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("subscriber 41: its download rate is missing"), "{}", faults[0]);
}

#[test]
fn netbox_gives_circuits_with_the_addresses_of_their_tenants() {
    let server = Server::start(|asked| {
        with_token(asked, "authorization", "Token abc", |path| {
            let results = match (path, asked.query.contains("offset=")) {
                ("/api/circuits/circuits/", false) => {
                    let host = asked.header("host").unwrap();
                    return json(format!(
                        r#"{{"count": 2, "next": "http://{host}{path}?limit=500&offset=1",
                        "previous": null, "results": [{{"id": 1, "cid": "C-1",
                        "provider": {{"id": 1, "name": "We"}}, "status": {{"value": "active"}},
                        "tenant": {{"id": 9, "name": "Ann Smith", "slug": "ann"}},
                        "commit_rate": 50000,
                        "termination_a": {{"id": 3, "site": {{"id": 1, "slug": "north"}},
                        "port_speed": 100000, "upstream_speed": 20000}}}}]}}"#
                    ));
                }
                ("/api/circuits/circuits/", true) => {
                    r#"{"count": 2, "next": null, "results": [{"id": 2, "cid": "C-2",
                        "provider": {"name": "We"}, "status": {"value": "active"},
                        "tenant": {"id": 10, "name": "Bakery", "slug": "bakery"},
                        "commit_rate": 30000,
                        "termination_a": {"termination_type": "dcim.site",
                        "termination": {"slug": "north"}, "port_speed": null,
                        "upstream_speed": null}}]}"#
                }
                ("/api/dcim/sites/", _) => {
                    r#"{"count": 1, "next": null,
                        "results": [{"id": 1, "slug": "north", "name": "North"}]}"#
                }
                ("/api/ipam/ip-addresses/", _) => {
                    r#"{"count": 2, "next": null, "results": [
                        {"address": "10.5.0.9/24", "tenant": {"id": 9}},
                        {"address": "10.5.0.1/24", "tenant": null}]}"#
                }
                ("/api/ipam/prefixes/", _) => {
                    r#"{"count": 1, "next": null, "results": [{"prefix": "10.6.0.0/28",
                        "status": {"value": "active"}, "tenant": {"id": 10}}]}"#
                }
                _ => return status(404),
            };
            json(results)
        })
    });
    let mapping = netbox::mapping("https://netbox.example.net").unwrap();
    let converted = sync(mapping, &server, "/api/", "abc");
    assert_eq!(faults(&converted), [""; 0]);
    assert_eq!(
        shown(&converted),
        [
            "C-1 Ann Smith at north has - 100000/20000 kbit/s: 10.5.0.9/32",
            "C-2 Bakery at north has - 30000/30000 kbit/s: 10.6.0.0/28",
        ]
    );
}
