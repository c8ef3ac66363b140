//! DHCP leases: from files and sockets to the store and the instance.
//!
//! *Idea.* A lease gives an address to a subscriber that another source has. The store keeps it
//! beside what that source says ([`Store::add_addresses`](narrows_store::Store::add_addresses)), so
//! the next sync of that source leaves it there.
//!
//! Nothing is done before each server was read once: what a server that does not answer has leased
//! would be taken from everybody. Later, its leases stay until they end.

use crate::Online;
use narrows_directory::Prefix;
use narrows_sessions::leases::{Config, Leases as Table, Source};
use narrows_store::added_addresses;
use narrows_units::{Nanos, counted};
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name under which addresses are added.
pub const SOURCE: &str = "leases";

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How often the subscribers of leases are found anew, though no lease changed: some end, and other
/// sources change subscribers.
const ANEW: Duration = Duration::from_secs(10);

/// A reader of leases that runs on.
#[derive(Debug)]
pub struct Leases {
    table: Table,
    sources: Vec<Followed>,
    online: Online,
    start: Instant,
    /// The revision of the store for which subscribers were found, and when.
    found: Option<(u64, Instant)>,
}

/// A server.
#[derive(Debug)]
struct Followed {
    source: Source,
    is_read: bool,
    complaint: String,
}

impl Leases {
    /// Of the servers in `config`.
    pub fn new(config: Config, online: Online) -> Self {
        let followed = |server| Followed {
            source: Source::new(server),
            is_read: false,
            complaint: String::new(),
        };
        let sources = config.servers.iter().map(followed).collect();
        let table = Table::new(config);
        Self { table, sources, online, start: Instant::now(), found: None }
    }

    /// Runs for ever.
    pub fn run(&mut self) -> ! {
        loop {
            self.turn();
            thread::sleep(LOOK);
        }
    }

    /// Reads what is new, and brings it into force.
    pub fn turn(&mut self) {
        let is_new = self.read();
        if !self.sources.iter().all(|followed| followed.is_read) {
            return;
        }
        if let Err(error) = self.assign(is_new) {
            log::error!("leases have no effect: {error}");
        }
        self.online.apply_again();
    }

    /// Whether any lease changed.
    fn read(&mut self) -> bool {
        let now = Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut is_new = false;
        for (index, followed) in self.sources.iter_mut().enumerate() {
            let said = match followed.source.poll(now) {
                Ok(None) => continue,
                Ok(Some(leases)) => {
                    let said = if followed.is_read {
                        String::new()
                    } else {
                        format!("read {}", counted(leases.len(), "lease"))
                    };
                    followed.is_read = true;
                    is_new |= self.table.set(index, leases);
                    said
                }
                Err(error) => error.to_string(),
            };
            if said != followed.complaint && !said.is_empty() {
                log::info!("{said}");
            }
            followed.complaint = said;
        }
        is_new
    }

    fn assign(&mut self, is_new: bool) -> Result<(), narrows_store::StoreError> {
        let store = self.online.store();
        let revision = store.revision()?;
        let is_same =
            self.found.is_some_and(|(found, when)| found == revision && when.elapsed() < ANEW);
        if is_same && !is_new {
            return Ok(());
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let directory = store.directory()?;
        let fixed = directory.subscribers.values().flat_map(|subscriber| {
            let added = added_addresses(subscriber);
            subscriber.addresses.iter().filter(move |address| !added.contains(address))
        });
        let fixed: BTreeSet<Prefix> = fixed.copied().collect();
        let assignments = self.table.assignments(unix, directory, &fixed);
        let changed = store.add_addresses(SOURCE, &assignments)?;
        self.found = Some((store.revision()?, Instant::now()));
        if changed > 0 {
            log::info!("leases changed the addresses of {}", counted(changed, "subscriber"));
            self.online.apply();
        }
        Ok(())
    }
}
