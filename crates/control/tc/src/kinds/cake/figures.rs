//! What `tc -s` prints for a `cake` beyond the statistics of all qdiscs.
//!
//! Scripts and exporters parse this table by its labels and columns, so it equals `tc`'s to the
//! blank. The memory of the instance itself, which Linux does not report, is in `narrows show`.

use crate::kinds::delays;
use crate::notation;
use crate::render::{Json, Line};
use narrows_qdisc::cake::{Figures, TinFigures};
use narrows_units::{Nanos, Rate};

/// The minimum packet length before the first packet: the kernel starts from the largest value.
const NO_SHORTEST: u32 = 65_535;
/// The names of three tins; other numbers of tins are numbered.
const THREE_TINS: [&str; 3] = ["Bulk", "Best Effort", "Voice"];
const FOUR_TINS: [&str; 4] = ["Bulk", "Best Effort", "Video", "Voice"];

pub(crate) fn figures(figures: &Figures, line: &mut Line) {
    let (used, limit) = (figures.memory_used.0, figures.memory_limit.0);
    let estimate = figures.capacity_estimate;
    let network = figures.network_size.unwrap_or((NO_SHORTEST, 0));
    let adjusted = figures.adjusted_size.unwrap_or((NO_SHORTEST, 0));
    let (queues, offset) = (figures.queues_active(), figures.average_offset);
    line.text(&format!(
        " memory used: {} of {}\n capacity estimate: {}\n",
        notation::size(used),
        notation::size(limit),
        line.rate(estimate),
    ));
    line.text(&format!(
        " min/max network layer size: {:>12} / {:>7}\n\
         \x20min/max overhead-adjusted size: {:>8} / {:>7}\n\
         \x20active queues: {queues:>25}\n average network hdr offset: {offset:>12}\n",
        network.0, network.1, adjusted.0, adjusted.1,
    ));
    for (key, value) in [
        ("memory_used", used),
        ("memory_limit", limit),
        ("capacity_estimate", estimate.bytes_per_sec()),
        ("min_network_size", u64::from(network.0)),
        ("max_network_size", u64::from(network.1)),
        ("min_adj_size", u64::from(adjusted.0)),
        ("max_adj_size", u64::from(adjusted.1)),
        ("active_queues", u64::from(queues)),
        ("avg_hdr_offset", u64::from(offset)),
    ] {
        line.json(key, Json::Number(value));
    }
    let delays = figures.delays.iter().map(delays::json).chain(std::iter::repeat_with(|| None));
    let tins = figures.tins.iter().zip(delays);
    let tins = tins.map(|(tin, delays)| tin_json(tin).into_iter().chain(delays).collect());
    line.json("tins", Json::Objects(tins.collect()));
    let table = table(&figures.tins, |rate| line.rate(rate));
    line.text(&table);
}

/// One column for each tin, one row for each figure.
fn table(tins: &[TinFigures], rate: impl Fn(Rate) -> String) -> String {
    let name = |tin: usize| match tins.len() {
        3 => THREE_TINS[tin].to_owned(),
        4 => FOUR_TINS[tin].to_owned(),
        _ => format!("Tin {tin}"),
    };
    let names: Vec<String> = (0..tins.len()).map(name).collect();
    let mut text = format!("\n{}", row("", names.into_iter()));
    let mut add = |label: &str, cell: &dyn Fn(&TinFigures) -> String| {
        text.push_str(&row(label, tins.iter().map(cell)));
    };
    add("thresh", &|tin| rate(tin.threshold));
    add("target", &|tin| notation::time(micros(tin.target)));
    add("interval", &|tin| notation::time(micros(tin.interval)));
    add("pk_delay", &|tin| notation::time(micros(tin.peak_delay)));
    add("av_delay", &|tin| notation::time(micros(tin.average_delay)));
    add("sp_delay", &|tin| notation::time(micros(tin.base_delay)));
    add("backlog", &|tin| notation::size(tin.backlog.0));
    add("pkts", &|tin| tin.packets.to_string());
    add("bytes", &|tin| tin.bytes.to_string());
    add("way_inds", &|tin| tin.way_indirect_hits.to_string());
    add("way_miss", &|tin| tin.way_misses.to_string());
    add("way_cols", &|tin| tin.way_collisions.to_string());
    add("drops", &|tin| tin.drops.to_string());
    add("marks", &|tin| tin.marks.to_string());
    add("ack_drop", &|tin| tin.ack_drops.to_string());
    add("sp_flows", &|tin| tin.sparse_flows.to_string());
    add("bk_flows", &|tin| tin.bulk_flows.to_string());
    add("un_flows", &|tin| tin.unresponsive_flows.to_string());
    add("max_len", &|tin| tin.max_len.to_string());
    add("quantum", &|tin| tin.quantum.to_string());
    text + "\n"
}

fn row(label: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!(" {cell:>12}")).collect();
    format!("  {label:<8}{cells}\n")
}

fn tin_json(tin: &TinFigures) -> Vec<(&'static str, Json)> {
    let number = |(key, value)| (key, Json::Number(value));
    [
        ("threshold_rate", tin.threshold.bytes_per_sec()),
        ("sent_bytes", tin.bytes),
        ("backlog_bytes", tin.backlog.0),
        ("target_us", micros(tin.target)),
        ("interval_us", micros(tin.interval)),
        ("peak_delay_us", micros(tin.peak_delay)),
        ("avg_delay_us", micros(tin.average_delay)),
        ("base_delay_us", micros(tin.base_delay)),
        ("sent_packets", tin.packets),
        ("way_indirect_hits", tin.way_indirect_hits),
        ("way_misses", tin.way_misses),
        ("way_collisions", tin.way_collisions),
        ("drops", tin.drops),
        ("ecn_mark", tin.marks),
        ("ack_drops", tin.ack_drops),
        ("sparse_flows", u64::from(tin.sparse_flows)),
        ("bulk_flows", u64::from(tin.bulk_flows)),
        ("unresponsive_flows", u64::from(tin.unresponsive_flows)),
        ("max_pkt_len", u64::from(tin.max_len)),
        ("flow_quantum", u64::from(tin.quantum)),
    ]
    .into_iter()
    .map(number)
    .collect()
}

fn micros(time: Nanos) -> u64 {
    time.0 / 1_000
}
