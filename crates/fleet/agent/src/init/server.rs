//! The configuration of a box's NATS server.
//!
//! Small limits: a message has 64 KiB at most, and a client that does not read is cut off. Short
//! times: a wire that is cut is noticed within two seconds, and nothing that was sent before waits
//! for it to be mended.

use super::files::ENGINE;
use super::host::Host;
use super::{CLIENT_PORT, Plan, ROUTE_PORT};
use crate::name::Name;
use crate::subjects::Subjects;
use std::fmt::Write as _;

/// The server of the box `name`, at `host`; `users` are the boxes with their public keys.
pub(super) fn configuration(
    plan: &Plan,
    name: &Name,
    host: &Host,
    users: &[(Subjects, String)],
) -> String {
    let at = |file: &str| plan.on_box(name, &format!("{ENGINE}/{file}"));
    let (certificate, key) = (at("server.pem"), at("server.key"));
    let (servers, agents) = (at("authority.pem"), at("agents.pem"));
    let fleet = &plan.fleet;
    let listens = host.listens();
    let others = plan.boxes.iter().filter(|(other, _)| other != name);
    let mut routes = String::new();
    for (_, host) in others {
        let _ = writeln!(routes, "    \"tls://{}:{ROUTE_PORT}\"", host.in_url());
    }
    // Every agent at one server, each also while its old connection is not yet known to be dead.
    let connections = 2 * plan.boxes.len() + 16;
    let mut text = format!(
        r#"# The NATS server of the box {name} in the fleet {fleet}, for nats-server 2.9 or newer.
server_name: "{name}"
listen: "{listens}:{CLIENT_PORT}"

# Agents prove with a certificate of the fleet that they may connect at all, and with their key who
# they are.
tls {{
  cert_file: "{certificate}"
  key_file: "{key}"
  ca_file: "{agents}"
  verify: true
  timeout: 2
}}

cluster {{
  name: "narrows-{fleet}"
  listen: "{listens}:{ROUTE_PORT}"
  no_advertise: true
  tls {{
    cert_file: "{certificate}"
    key_file: "{key}"
    ca_file: "{servers}"
    verify: true
    timeout: 2
  }}
  routes: [
{routes}  ]
}}

max_payload: 64KB
max_pending: 8MB
max_connections: {connections}
max_subscriptions: 16
max_control_line: 1KB
write_deadline: "1s"
ping_interval: "500ms"
ping_max: 2

"#
    );
    text += &self::users(users);
    text
}

/// The boxes, and what each may say and hear.
pub(super) fn users(users: &[(Subjects, String)]) -> String {
    let mut text = String::from("authorization {\n  timeout: 2\n  users: [\n");
    for (subjects, key) in users {
        let [to_all, to_me] = subjects.heard();
        let own = subjects.own();
        let _ = writeln!(
            text,
            "    {{ nkey: {key}, permissions: {{ publish: {{ allow: [\"{own}\"] }}, subscribe: {{ \
             allow: [\"{to_all}\", \"{to_me}\"] }} }} }}"
        );
    }
    text += "  ]\n}\n";
    text
}
