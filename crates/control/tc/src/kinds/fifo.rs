//! `pfifo` and `bfifo`.

use crate::complaint::Complaint;
use crate::render::{Json, Line};
use crate::words::Words;
use crate::{notation, number};
use narrows_policy::{Fifo, FifoUnit, Params};

pub(super) fn parse(unit: FifoUnit, mut words: Words) -> Result<Params, Complaint> {
    let kind = unit.kind_name();
    let mut limit = None;
    while let Some(word) = words.next() {
        match word {
            "limit" => {
                let value = words.value("limit", "1000")?;
                limit = Some(number::size(value).ok_or_else(|| {
                    let what = match unit {
                        FifoUnit::Packets => "a number of packets, as 1000",
                        FifoUnit::Bytes => number::SIZE_HINT,
                    };
                    Complaint::wrong(format!(
                        "{kind}: Illegal value for \"limit\": \"{value}\": {what}."
                    ))
                })?);
            }
            "help" => return Err(Complaint::wrong(format!("Usage: {kind} [limit NUMBER]"))),
            _ => {
                return Err(Complaint::wrong(format!(
                    "{kind}: unknown parameter \"{word}\": the only one is limit."
                )));
            }
        }
    }
    Ok(Params::Fifo(unit, limit))
}

pub(super) fn show(fifo: Fifo, line: &mut Line) {
    let text = match fifo.unit {
        FifoUnit::Packets => format!("limit {}p", fifo.limit),
        FifoUnit::Bytes => format!("limit {}", notation::size(u64::from(fifo.limit))),
    };
    line.add("limit", Json::Number(u64::from(fifo.limit)), &text);
}

pub(super) fn save(fifo: Fifo) -> String {
    format!(" limit {}", fifo.limit)
}
