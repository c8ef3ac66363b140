//! What a changed plan costs with many subscribers, without the instance: `cost [SUBSCRIBERS]`.
//! Prints elapsed time and processor time: on a busy machine only the second says something.
//!
//! `cargo run --release -p narrows-store --example directory_cost -- 100000`

use narrows_directory::{
    Change, Directory, Form, Incremental, Options, Plan, Ports, Site, Subscriber,
};
use narrows_store::{Guard, Store};
use narrows_units::Rate;
use std::time::Instant;

fn directory(subscribers: u32) -> Directory {
    let mut directory = Directory::default();
    let rate = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
    for site in 0..1000_u32 {
        let it = Site { capacity: [Some(rate(1000)), Some(rate(300))], ..Site::default() };
        directory.sites.insert(format!("AP {site}"), it);
    }
    for index in 0..subscribers {
        let ceiling = [rate(50), rate(10)];
        let address = std::net::Ipv4Addr::from(0x6440_0000 + index);
        let subscriber = Subscriber {
            name: format!("Customer {index}"),
            site: Some(format!("AP {}", index % 1000)),
            plan: Plan { ceiling, ..Plan::default() },
            addresses: vec![address.to_string().parse().expect("an address")],
            ..Subscriber::default()
        };
        directory.subscribers.insert(index.to_string(), subscriber);
    }
    directory
}

/// How long this process has run on a processor: proc_pid_schedstat(5), in nanoseconds.
fn processor_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    nanos.unwrap_or(f64::NAN) / 1e6
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let subscribers = std::env::args().nth(1).map_or(Ok(100_000), |it| it.parse())?;
    let folder = std::env::temp_dir().join(format!("nrw-cost-{}", std::process::id()));
    let file = folder.join("directory.sqlite");
    let mut store = Store::open(&file)?;
    let mut all = directory(subscribers);
    let ports = Ports { internet: "eth1".to_owned(), subscribers: "eth2".to_owned() };
    let mut last = (Instant::now(), processor_ms());
    let mut say = |what: &str| {
        let ms = last.0.elapsed().as_secs_f64() * 1e3;
        println!("{ms:8.1} ms {:8.1} ms of a processor  {what}", processor_ms() - last.1);
        last = (Instant::now(), processor_ms());
    };
    say("");
    store.replace("csv", &all, Guard::NONE)?;
    say("all into a new store");
    drop(store);
    let mut store = Store::open(&file)?;
    store.directory()?;
    say("read again");
    let numbers = store.numbers()?.clone();
    say("a copy of the numbers");
    let options = Options { ports, uplink: [None; 2], numbers };
    let (before, _) = Form::compile(store.directory()?, &options);
    say("compiled");
    let mut kept = Incremental::new(store.directory()?, &options);
    say("what is kept of it");
    let one = all.subscribers.get_mut("7").ok_or("no subscriber 7")?;
    one.plan.ceiling[0] = Rate::from_bits_per_sec(100_000_000);
    let one = one.clone();
    say("");
    store.begin()?;
    store.finish("{}")?;
    say("an application that is noted");
    store.upsert("csv", "7", one)?;
    say("one changed plan into the store, as an API does");
    let begun = store.begin()?;
    say("an application that has begun");
    let before_it = begun.before.ok_or("not known")?;
    let (directory, numbers) = store.begun();
    let changes = before_it.differs().subscribers.iter().map(|(identity, old)| Change {
        identity: identity.clone(),
        old: old.as_ref(),
        new: directory.subscribers.get(identity),
    });
    let changes: Vec<Change<&Subscriber>> = changes.collect();
    let [from, to] = kept.change(&changes, numbers).ok_or("no number")?;
    let commands = from.towards(&to);
    say("its commands, from what is kept");
    let (after, _) = Form::compile(store.directory()?, &options);
    say("compiled, where nothing is kept");
    assert_eq!(before.towards(&after), commands);
    say("compared");
    let former = before_it.directory(store.directory()?);
    say("the directory as it was");
    let again = Form::compile(&former, &options).0;
    say("compiled, by a process that starts");
    assert_eq!((again == before, commands.len()), (true, 1));
    say("");
    store.replace("csv", &all, Guard::NONE)?;
    say("all compared with the store, as a file's sync does");
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
