//! Qdiscs and classes of a port as JSON, for programs with displays of their own.

use crate::complaint::{Complaint, Outcome};
use crate::options::Options;
use crate::words::Words;
use crate::{Host, class, qdisc};

/// Runs a `show` command with `words` on `host`.
type Show = fn(Words, &Options, &dyn Host) -> Result<Outcome, Complaint>;

/// The qdiscs of port `dev`, as `tc -s -j qdisc show dev` prints them.
pub fn qdiscs(dev: &str, host: &dyn Host) -> String {
    listed(qdisc::show, dev, host)
}

/// The classes of port `dev`, as `tc -s -j class show dev` prints them.
pub fn classes(dev: &str, host: &dyn Host) -> String {
    listed(class::show, dev, host)
}

fn listed(show: Show, dev: &str, host: &dyn Host) -> String {
    let options = Options { statistics: true, json: true, ..Options::default() };
    let words = ["dev", dev];
    // A port that is absent at the moment has nothing to show.
    show(Words::new(&words), &options, host).map_or_else(|_| "[]".into(), |shown| shown.stdout)
}
