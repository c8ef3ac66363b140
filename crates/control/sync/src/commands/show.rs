//! `narrows-sync show`.

use super::common::StoreArgs;
use clap::Args;
use narrows_directory::{Directory, Subscriber, printable};
use narrows_program::output;
use narrows_store::Store;
use narrows_units::counted;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Show the directory: sites and subscribers, with their sources.
#[derive(Args)]
#[command(after_long_help = "Examples:
  narrows-sync show
  narrows-sync show --csv > subscribers.csv
  narrows-sync show --json | jq '.subscribers[\"1042\"].plan'")]
pub struct Show {
    #[command(flatten)]
    store: StoreArgs,

    /// As JSON: rates in bit/s, pairs as [downstream, upstream].
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// The subscribers as CSV: rates in kbit/s.
    #[arg(long)]
    csv: bool,
}

impl Show {
    /// Prints it.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let mut store = self.store.open_existing()?;
        match (self.json, self.csv) {
            (true, _) => output::json_text(&json_form(&mut store)?),
            (_, true) => output::data(&csv_form(&mut store)?),
            _ => output::text(text_form(&mut store)?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `1:7a8b9c`: the class at both ports.
fn class(number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| format!("1:{number:x}"))
}

fn text_form(store: &mut Store) -> anyhow::Result<String> {
    let sources = store.sources()?;
    let revision = store.revision()?;
    let numbers = store.numbers()?.clone();
    let Directory { sites, subscribers } = store.directory()?;
    let mut text = format!(
        "{} at {}, revision {revision}\n",
        counted(subscribers.len(), "subscriber"),
        counted(sites.len(), "site")
    );
    for (source, [sites, subscribers]) in sources {
        let (sites, subscribers) = (counted(sites, "site"), counted(subscribers, "subscriber"));
        text += &format!("from {}: {subscribers}, {sites}\n", printable(&source));
    }
    for (identity, site) in sites {
        let capacity = site.capacity.map(|rate| rate.map_or("-".to_owned(), |it| it.to_string()));
        let parent = site.parent.as_deref().unwrap_or("-");
        text += &format!(
            "site {}  {}  {}  {}  below {}\n",
            printable(identity),
            class(numbers.of_site(identity)),
            printable(&site.name),
            capacity.join(" / "),
            printable(parent)
        );
    }
    for (identity, subscriber) in subscribers {
        let Subscriber { name, site, plan, addresses, .. } = subscriber;
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        text += &format!(
            "subscriber {}  {}  {}  {}  at {}  {}\n",
            printable(identity),
            class(numbers.of_subscriber(identity)),
            printable(name),
            plan.ceiling.map(|rate| rate.to_string()).join(" / "),
            printable(site.as_deref().unwrap_or("-")),
            addresses.join(" ")
        );
    }
    Ok(text)
}

fn json_form(store: &mut Store) -> anyhow::Result<String> {
    let revision = store.revision()?;
    let numbers = store.numbers()?.clone();
    let directory = store.directory()?.clone();
    let mut sites = Map::new();
    for (identity, site) in &directory.sites {
        let mut value = serde_json::to_value(site)?;
        value["class"] = class(numbers.of_site(identity)).into();
        sites.insert(identity.clone(), value);
    }
    let mut subscribers = Map::new();
    for (identity, subscriber) in &directory.subscribers {
        let mut value = serde_json::to_value(subscriber)?;
        value["class"] = class(numbers.of_subscriber(identity)).into();
        value["source"] = store.source_of(identity)?.map_or(Value::Null, Value::from);
        subscribers.insert(identity.clone(), value);
    }
    let whole = json!({ "revision": revision, "sites": sites, "subscribers": subscribers });
    Ok(serde_json::to_string_pretty(&whole)? + "\n")
}

fn csv_form(store: &mut Store) -> anyhow::Result<String> {
    let numbers = store.numbers()?.clone();
    let directory = store.directory()?.clone();
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record([
        "id",
        "name",
        "site",
        "class",
        "source",
        "down_kbit",
        "up_kbit",
        "down_assured_kbit",
        "up_assured_kbit",
        "addresses",
    ])?;
    for (identity, subscriber) in &directory.subscribers {
        let Subscriber { name, site, plan, addresses, .. } = subscriber;
        let kbit = |rate: narrows_units::Rate| (rate.bits_per_sec() as f64 / 1e3).to_string();
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        rows.write_record([
            identity.as_str(),
            name,
            site.as_deref().unwrap_or_default(),
            &class(numbers.of_subscriber(identity)),
            &store.source_of(identity)?.unwrap_or_default(),
            &kbit(plan.ceiling[0]),
            &kbit(plan.ceiling[1]),
            &kbit(plan.assured[0]),
            &kbit(plan.assured[1]),
            &addresses.join(" "),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}
