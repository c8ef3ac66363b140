//! FreeRADIUS' client speaks with the listener.

use narrows_sessions::radius::{Config, Listener, Now, Sessions};
use narrows_units::{Nanos, Rate};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Sends a request of `kind` with `attributes`, and returns what `radclient` prints.
fn radclient(
    listener: &Listener,
    sessions: &mut Sessions,
    kind: &str,
    attributes: &str,
) -> Option<String> {
    let address = listener.addresses().next()?.to_string();
    let mut command = Command::new("radclient");
    command.args(["-x", "-r", "1", "-t", "20", &address, kind, "tested secret"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: radclient is missing: apt-get install freeradius-utils");
            return None;
        }
        Err(error) => panic!("radclient: {error}"),
    };
    child.stdin.take()?.write_all(attributes.as_bytes()).unwrap();
    let datagram = listener.receive(Nanos::from_secs(60)).unwrap().expect("a request");
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Now { steady: Nanos::from_secs(1), unix: unix.as_secs() };
    let answer = sessions.receive(now, datagram.from, &datagram.bytes).expect("an answer");
    listener.answer(&datagram, &answer);
    let output = child.wait_with_output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn radclient_accepts_the_answers() {
    let text = crate::common::CONFIG.replace(
        "from = [\"192.0.2.64/26\"]",
        "from = [\"127.0.0.1\"]\nneeds_message_authenticator = false",
    );
    let config = Config::parse(&text).unwrap();
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let mut sessions = Sessions::new(config);

    let start = "Acct-Status-Type = Start\nAcct-Session-Id = \"81\"\nUser-Name = \"ann\"\n\
                 Framed-IP-Address = 10.0.0.5\nFramed-IPv6-Prefix = 2001:db8:1:2::/64\n\
                 Delegated-IPv6-Prefix = 2001:db8:ff00::/56\nNAS-Identifier = \"bng-1\"\n\
                 Mikrotik-Rate-Limit = \"10M/50M\"\nCalling-Station-Id = \"00-0C-29-AA-BB-CC\"\n";
    let Some(said) = radclient(&listener, &mut sessions, "acct", start) else { return };
    assert!(said.contains("Received Accounting-Response"), "{said}");
    let subscriber = sessions.changes().remove(0).subscriber.unwrap();
    let addresses: Vec<_> = subscriber.addresses.iter().map(|one| one.ip.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.5", "2001:db8:1:2::", "2001:db8:ff00::"]);
    let mbit = |rate: u64| Rate::from_bits_per_sec(rate * 1_000_000);
    assert_eq!(subscriber.plan.ceiling, [mbit(50), mbit(10)]);
    assert_eq!(subscriber.site.as_deref(), Some("west"));

    let change = "Acct-Session-Id = \"81\"\nWISPr-Bandwidth-Max-Down = 5000000\n\
                  WISPr-Bandwidth-Max-Up = 1000000\nMessage-Authenticator = 0x00\n\
                  Event-Timestamp = \"%l\"\n";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let change = change.replace("\"%l\"", &now.to_string());
    let said = radclient(&listener, &mut sessions, "coa", &change).unwrap();
    assert!(said.contains("Received CoA-ACK"), "{said}");
    assert!(said.contains("Message-Authenticator"), "{said}");
    let subscriber = sessions.changes().remove(0).subscriber.unwrap();
    assert_eq!(subscriber.plan.ceiling, [mbit(5), mbit(1)]);

    let nobody = "Acct-Session-Id = \"82\"\nWISPr-Bandwidth-Max-Up = 1000000\n";
    let said = radclient(&listener, &mut sessions, "coa", nobody).unwrap();
    assert!(said.contains("Received CoA-NAK"), "{said}");
    assert!(said.contains("Error-Cause = Session-Context-Not-Found"), "{said}");

    let end = "User-Name = \"ann\"\nFramed-IP-Address = 10.0.0.5\n";
    let said = radclient(&listener, &mut sessions, "disconnect", end).unwrap();
    assert!(said.contains("Received Disconnect-ACK"), "{said}");
    assert!(sessions.changes().remove(0).subscriber.unwrap().addresses.is_empty());
    assert_eq!(sessions.counters().not_authentic, 0);
}
