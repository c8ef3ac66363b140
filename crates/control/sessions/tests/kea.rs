//! A Kea server's own lease file and control socket, with its cleanups going on.

use narrows_directory::Prefix;
use narrows_sessions::leases::kea_file::Follower;
use narrows_sessions::leases::{Field, Table, kea_socket};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SERVER: &str = "/usr/sbin/kea-dhcp4";
/// For how long a condition is awaited.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that listens at no interface.
struct Kea {
    folder: PathBuf,
    child: Child,
}

impl Kea {
    fn start() -> Option<Self> {
        let mut find = Command::new("find");
        let hooks = find.args(["/usr/lib", "-name", "libdhcp_lease_cmds.so"]).output().ok()?.stdout;
        let hook = String::from_utf8(hooks).ok()?.lines().next().map(str::to_owned);
        let (true, Some(hook)) = (Path::new(SERVER).exists(), hook) else {
            eprintln!("SKIPPED: Kea is missing: apt-get install kea-dhcp4-server");
            return None;
        };
        // A socket's path has at most 107 bytes.
        let folder = std::env::temp_dir().join(format!("nrw-kea-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let config = serde_json::json!({ "Dhcp4": {
            "interfaces-config": { "interfaces": [] },
            "control-socket": { "socket-type": "unix", "socket-name": path("socket") },
            "lease-database": {
                "type": "memfile", "persist": true, "name": path("leases4.csv"), "lfc-interval": 1
            },
            "hooks-libraries": [ { "library": hook } ],
            "subnet4": [ { "id": 1, "subnet": "10.0.0.0/16" } ],
        } });
        fs::write(folder.join("kea.json"), config.to_string()).unwrap();
        let child = Command::new(SERVER)
            .args(["-c", &path("kea.json")])
            .env("KEA_PIDFILE_DIR", &folder)
            .env("KEA_LOCKFILE_DIR", &folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let kea = Self { folder, child };
        kea.wait("there", || UnixStream::connect(kea.path("socket")).is_ok());
        Some(kea)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "not {what} within {PATIENCE:?}");
            sleep(Duration::from_millis(20));
        }
    }

    fn command(&self, command: &str, arguments: &serde_json::Value) {
        let mut stream = UnixStream::connect(self.path("socket")).unwrap();
        let text = serde_json::json!({ "command": command, "arguments": arguments }).to_string();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"result\": 0"), "{command}: {answer}");
    }

    fn add(&self, last: u8) {
        self.command("lease4-add", &serde_json::json!({
            "ip-address": format!("10.0.0.{last}"),
            "hw-address": format!("00:0c:29:00:00:{last:02x}"),
            "user-context": { "ISC": { "relay-agent-info": "0x0103612F31" }, "contract": "a, b" },
        }));
    }
}

impl Drop for Kea {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn addresses(table: &Table) -> BTreeSet<Prefix> {
    table.keys().copied().collect()
}

#[test]
fn file_and_socket_say_what_the_server_has() {
    let Some(kea) = Kea::start() else { return };
    let mut follower = Follower::new(kea.path("leases4.csv"));
    let mut expected = BTreeSet::new();
    let prefix = |last: u8| Prefix { ip: [10, 0, 0, last].into(), bits: 32 };
    for last in 1..60_u8 {
        kea.add(last);
        expected.insert(prefix(last));
        if last % 3 == 0 {
            let arguments = serde_json::json!({ "ip-address": format!("10.0.0.{last}") });
            kea.command("lease4-del", &arguments);
            expected.remove(&prefix(last));
        }
        // Once, a cleanup lies between two of them for sure.
        if last == 30 {
            let cleaned = kea.path("leases4.csv.2");
            kea.wait("cleaned up", || cleaned.exists());
        }
        // A cleanup may be in the middle of it; the next look sees all.
        kea.wait("read", || follower.poll().is_ok() && addresses(follower.table()) == expected);
    }
    let table = kea_socket::read(&kea.path("socket"), false).unwrap();
    assert_eq!(addresses(&table), expected);
    let lease = &table[&prefix(1)];
    assert_eq!(lease.fields[&Field::HwAddress], "00:0c:29:00:00:01");
    assert_eq!(lease.fields[&Field::CircuitId], "a/1");
    assert_eq!(lease.context["contract"], "a, b");
    assert_eq!(Some(lease), follower.table().get(&prefix(1)), "both say the same");

    let none = kea_socket::read(&kea.path("socket"), true).unwrap();
    assert!(none.is_empty(), "a server of DHCPv4 has no leases of DHCPv6");
}
