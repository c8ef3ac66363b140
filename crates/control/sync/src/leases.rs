//! DHCP leases: from files and sockets to the store and the instance.
//!
//! *Idea.* A lease gives an address to a subscriber that another source has. The store keeps it
//! beside what that source says ([`Store::add_addresses`](narrows_store::Store::add_addresses)), so
//! the next sync of that source leaves it there.
//!
//! Nothing is done before each server was read once: what a server that does not answer has leased
//! would be taken from everybody. Later, its leases stay until they end.

use crate::Online;
use narrows_sessions::leases::{Config, Leases as Table, News, Source};
use narrows_store::added_addresses;
use narrows_units::{Nanos, counted};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The name under which addresses are added.
pub const SOURCE: &str = "leases";

/// How often files are looked at. That is a system call each.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether another process has changed subscribers, and which leases end.
const LOOK_AT_STORE: Duration = Duration::from_millis(200);
/// How long nothing is tried after the store has refused.
const AGAIN: Duration = Duration::from_secs(10);

/// A reader of leases that runs on.
#[derive(Debug)]
pub struct Leases {
    table: Table,
    sources: Vec<Followed>,
    online: Online,
    start: Instant,
    /// How often the store had been read when subscribers were taken from it. Those of another
    /// process are known by that.
    known: Option<u64>,
    /// When leases are brought to the store, though none has changed.
    due: Instant,
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
        let (table, now) = (Table::new(config), Instant::now());
        Self { table, sources, online, start: now, known: None, due: now }
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
        let now = Instant::now();
        // After a refusal, new leases wait, too.
        let is_time = self.due <= now || is_new && self.known.is_some();
        if is_time && self.sources.iter().all(|followed| followed.is_read) {
            self.due = now + LOOK_AT_STORE;
            if let Err(error) = self.assign() {
                log::error!("leases have no effect: {error}");
                (self.known, self.due) = (None, now + AGAIN);
            }
        }
        self.online.apply_again();
    }

    /// Whether any lease may have changed.
    fn read(&mut self) -> bool {
        let now = Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut is_new = false;
        for (index, followed) in self.sources.iter_mut().enumerate() {
            let said = match followed.source.poll(now) {
                Ok(None) => continue,
                Ok(Some(news)) => {
                    let said = match &news {
                        News::All(all) if !followed.is_read => {
                            format!("read {}", counted(all.len(), "lease"))
                        }
                        _ => String::new(),
                    };
                    followed.is_read = true;
                    is_new = true;
                    self.table.set(index, news);
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

    fn assign(&mut self) -> Result<(), narrows_store::StoreError> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let store = self.online.store();
        let reads = store.reads()?;
        let changed = if self.known == Some(reads) {
            let changes = self.table.changes(unix);
            match changes.is_empty() {
                true => 0,
                false => store.add_addresses_to(SOURCE, &changes)?,
            }
        } else {
            let directory = store.directory()?;
            let fixed = directory.subscribers.values().flat_map(|subscriber| {
                let added = added_addresses(subscriber);
                let all = subscriber.addresses.iter().copied();
                all.filter(move |address| !added.contains(address))
            });
            self.table.know(directory, fixed);
            self.table.changes(unix);
            store.add_addresses(SOURCE, &self.table.assignments())?
        };
        // If another process has changed the store meanwhile, it was read again, and so it is next
        // time.
        self.known = Some(reads);
        if changed > 0 {
            log::info!("leases changed the addresses of {}", counted(changed, "subscriber"));
            self.online.apply();
        }
        Ok(())
    }
}
