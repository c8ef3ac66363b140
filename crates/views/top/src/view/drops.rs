//! Where packets were lost: in the queues by reason, in the kernel, in the device; and which
//! bypassed a worker.

use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Port, Snapshot};

const COLUMNS: &[Column] = &[
    Column { name: "Where, why", width: 34 },
    Column { name: "Drop/s", width: 7 },
    Column { name: "Packets", width: 8 },
    Column { name: "Share", width: 6 },
];

/// Shares are of the queues' drops. The kernel and the device may count the same packets, so their
/// counts are not added up.
pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let mut rows = Vec::new();
    for port in &now.ports {
        let is = port.losses();
        if is.iter().all(|(_, count)| *count == 0) {
            continue;
        }
        let was = change.and_then(|change| change.port(&port.name)).map(Port::losses);
        let all = port.total.drops;
        let rate = change.and_then(|change| change.of_port(port).drops_pps);
        let top = rows.len();
        rows.push(row(port.name.clone(), None, &port.name, rate, all, None));
        for (why, count) in is.into_iter().filter(|(_, count)| *count > 0) {
            let was = was.as_ref().map(|was| {
                was.iter().find(|(earlier, _)| *earlier == why).map_or(0, |(_, count)| *count)
            });
            let rate = change.zip(was).and_then(|(it, was)| it.per_second(was, count));
            let is_of_queue = port.total.drops_by_reason.contains_key(&why) && all > 0;
            let share = is_of_queue.then(|| count as f64 / all as f64);
            let key = format!("{} {why}", port.name);
            rows.push(row(key, Some(top), &why, rate, count, share));
        }
    }
    Table { columns: COLUMNS.to_vec(), rows }
}

fn row(
    key: String,
    parent: Option<usize>,
    name: &str,
    rate: Option<f64>,
    count: u64,
    share: Option<f64>,
) -> Row {
    let share = share.map_or_else(Cell::blank, |share| Cell::percent(Some(share)));
    let cells = vec![Cell::text(name), Cell::number(rate), Cell::count(count), share];
    Row { rate, ..Row::new(key, parent, cells) }
}
