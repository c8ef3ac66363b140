//! Workers: the load of each, and where its frames are.

use super::{Fact, facts_of};
use crate::cell::Cell;
use crate::table::{Column, Row, Table};
use narrows_snapshot::{Change, Snapshot, Worker};

const COLUMNS: &[Column] = &[
    Column { name: "Worker", width: 7 },
    Column { name: "Core", width: 4 },
    Column { name: "Thread", width: 6 },
    Column { name: "Busy", width: 6 },
    Column { name: "CPU", width: 6 },
    Column { name: "Frames", width: 6 },
    Column { name: "Free", width: 5 },
    Column { name: "Receiv", width: 6 },
    Column { name: "Waitng", width: 6 },
    Column { name: "Sendng", width: 6 },
    Column { name: "State", width: 12 },
];

pub(super) fn table(now: &Snapshot, change: Option<&Change>) -> Table {
    let rows = now.workers.iter().map(|worker| {
        let was = change.and_then(|change| {
            let workers = &change.earlier().workers;
            workers.iter().find(|was| was.queue == worker.queue).map(|was| (change, was))
        });
        let idle = was.and_then(|(change, was)| change.share(was.idle_s, worker.idle_s));
        let cpu = was.and_then(|(change, was)| change.share(was.cpu_s, worker.cpu_s));
        let state = match worker.silent_s {
            Some(seconds) => format!("SILENT {seconds:.0} s"),
            None => "ok".into(),
        };
        let cells = vec![
            Cell::text(worker.queue.to_string()),
            Cell::count(worker.cpu as u64),
            Cell::count(worker.thread.into()),
            Cell::percent(idle.map(|idle| (1.0 - idle).clamp(0.0, 1.0))),
            Cell::percent(cpu),
            Cell::count(worker.frames.into()),
            Cell::count(worker.free_frames.into()),
            Cell::count(worker.receiving_frames.into()),
            Cell::count(worker.waiting_frames.into()),
            Cell::count(worker.sending_frames.into()),
            Cell::text(state),
        ];
        let row = Row::new(key(worker), None, cells);
        Row { rate: cpu, is_warning: worker.silent_s.is_some(), ..row }
    });
    Table { columns: COLUMNS.to_vec(), rows: rows.collect() }
}

fn key(worker: &Worker) -> String {
    format!("worker {}", worker.queue)
}

pub(super) fn details(now: &Snapshot, key: &str) -> Vec<Fact> {
    let worker = now.workers.iter().find(|worker| self::key(worker) == key);
    worker.map(facts_of).unwrap_or_default()
}
