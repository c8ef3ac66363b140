//! How delays were spread over time: for each port and interval, how many packets had which delay.

use super::subject::Way;
use narrows_snapshot::Delays;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use std::collections::{BTreeMap, VecDeque};

/// The upper ends of the steps, in microseconds; the last step has no end.
pub(crate) const BOUNDS_US: [u32; STEPS - 1] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000];
/// How many steps there are.
pub(crate) const STEPS: usize = 13;
/// The most ports that have a map: each takes 190 kB an hour.
const PORTS_MAX: usize = 16;

/// Packets by step.
pub(crate) type Column = [u32; STEPS];

/// The packets of `delays` by step.
pub(crate) fn column(delays: &Delays) -> Column {
    let mut column = [0_u32; STEPS];
    for (us, packets) in delays.counts.iter() {
        let step = BOUNDS_US.iter().position(|end| us <= f64::from(*end)).unwrap_or(STEPS - 1);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        column[step] = column[step].saturating_add(packets);
    }
    column
}

/// The columns of the last intervals.
#[derive(Debug)]
pub(crate) struct Heat {
    points: usize,
    /// In seconds since 1970.
    times: VecDeque<f64>,
    ports: BTreeMap<String, VecDeque<Column>>,
}

impl Heat {
    /// Room for so many intervals.
    pub(crate) fn new(points: usize) -> Self {
        Self { points, times: VecDeque::new(), ports: BTreeMap::new() }
    }

    /// Adds a column for each port at `time`; none for those that are not named.
    pub(crate) fn push<'a>(
        &mut self,
        time: f64,
        columns: impl IntoIterator<Item = (&'a str, Column)>,
    ) {
        if self.times.len() == self.points {
            self.times.pop_front();
            for port in self.ports.values_mut() {
                port.pop_front();
            }
        }
        self.times.push_back(time);
        for (port, column) in columns {
            let is_known = self.ports.contains_key(port);
            if !is_known && self.ports.len() >= PORTS_MAX {
                continue;
            }
            let before = vec![[0; STEPS]; self.times.len() - 1];
            let ring = self.ports.entry(port.to_owned()).or_insert_with(|| before.into());
            ring.push_back(column);
        }
        let length = self.times.len();
        self.ports.values_mut().for_each(|port| port.resize(length, [0; STEPS]));
        self.ports.retain(|_, port| port.iter().flatten().any(|packets| *packets > 0));
    }

    /// The columns after `time` of these ports.
    pub(crate) fn since(&self, time: f64, ports: &[(&str, Way)]) -> impl Serialize {
        #[derive(Serialize)]
        struct Since<'a> {
            bounds: [u32; STEPS - 1],
            times: Vec<f64>,
            ports: Vec<Of<'a>>,
        }
        #[derive(Serialize)]
        struct Of<'a> {
            port: &'a str,
            way: Way,
            columns: Part<'a>,
        }
        struct Part<'a>(&'a VecDeque<Column>, usize);
        impl Serialize for Part<'_> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut all = to.serialize_seq(Some(self.0.len() - self.1))?;
                self.0.range(self.1..).try_for_each(|column| all.serialize_element(column))?;
                all.end()
            }
        }
        let first = self.times.partition_point(|point| *point <= time);
        let known = ports.iter().filter_map(|(port, way)| {
            let (port, columns) = self.ports.get_key_value(*port)?;
            Some(Of { port, way: *way, columns: Part(columns, first) })
        });
        Since {
            bounds: BOUNDS_US,
            times: self.times.range(first..).copied().collect(),
            ports: known.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn packets_are_counted_by_the_step_that_their_delay_is_in() {
        let column = column(&Delays::new(vec![(100.0, 1), (100.1, 2), (499_000.0, 3), (9e9, 4)]));
        assert_eq!((column[0], column[1], column[11], column[12]), (1, 2, 3, 4));
    }

    #[test]
    fn a_client_gets_the_columns_that_are_new_to_it() {
        let mut heat = Heat::new(2);
        let one = |first| {
            let mut column = [0; STEPS];
            column[0] = first;
            column
        };
        heat.push(1.0, [("lan", one(1))]);
        heat.push(2.0, [("lan", one(2)), ("wan", one(9))]);
        heat.push(3.0, [("lan", one(3))]);
        let seen = |time| {
            let ports = [("lan", Way::Down), ("wan", Way::Up), ("gone", Way::Up)];
            serde_json::to_value(heat.since(time, &ports)).unwrap()
        };
        assert_eq!(seen(0.0)["times"], json!([2.0, 3.0]));
        assert_eq!(seen(0.0)["ports"][1]["columns"][0][0], 9);
        assert_eq!(seen(2.0)["ports"][0]["columns"], json!([one(3)]));
        assert_eq!(seen(2.0)["ports"].as_array().unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn each_port_has_a_column_for_each_time(
            pushed in proptest::collection::vec(
                proptest::collection::btree_map("[a-c]", 1u32..9, 0..3), 0..30),
        ) {
            let mut heat = Heat::new(7);
            for (time, columns) in pushed.iter().enumerate() {
                let columns = columns.iter().map(|(port, packets)| (&port[..], [*packets; STEPS]));
                heat.push(time as f64, columns);
                prop_assert!(heat.times.len() <= 7);
                prop_assert!(heat.ports.values().all(|port| port.len() == heat.times.len()));
            }
            let kept = pushed.iter().rev().take(7).rev();
            let sums: u32 = kept.flat_map(|columns| columns.values()).sum();
            let held: u32 = heat.ports.values().flatten().map(|column| column[0]).sum();
            prop_assert_eq!(sums, held);
        }
    }
}
