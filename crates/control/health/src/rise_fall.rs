//! Which servers of a service are down, by the results of checks.
//!
//! A server fails after `fall` failed checks in a row, and is well again after `rise` passed ones.
//! One that fails is down, as long as another server can take new connections. If none is left, the
//! one that failed last stays up: to send clients to a server that may be dead is better than to
//! send them nowhere, and the fault may be the checker's. A server of weight 0 takes no new
//! connections, so it is another server only where all weights are 0.
//!
//! No clock, no sockets. Cost: a look at each server of the service for each question.

use narrows_balance::Health;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many results in a row change what a server is. Each is at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Passed checks, until one that fails is well.
    pub rise: u32,
    /// Failed checks, until one that is well fails.
    pub fall: u32,
}

/// A server as the balancer lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its part of new connections.
    pub weight: u16,
    /// What was said of it.
    pub health: Health,
}

/// The servers of a service.
#[derive(Clone, Debug)]
pub struct Servers {
    thresholds: Thresholds,
    known: BTreeMap<IpAddr, Server>,
    /// How often servers have failed.
    falls: u64,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    weight: u16,
    /// Which fall it was with which it began to fail, of all servers of the service; none if it is
    /// well. Those from before the first check are [`BEFORE`] and, of the last, [`BEFORE_LAST`].
    failed_at: Option<u64>,
    /// How many results in a row contradict that.
    against: u32,
}

const BEFORE: u64 = 0;
const BEFORE_LAST: u64 = 1;

impl Servers {
    /// None yet.
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, known: BTreeMap::new(), falls: BEFORE_LAST }
    }

    /// Has the servers that are `listed`. A new one begins with what is said of it; of the others
    /// only the weight counts.
    pub fn follow(&mut self, listed: &BTreeMap<IpAddr, Member>) {
        self.known.retain(|address, _| listed.contains_key(address));
        for (address, member) in listed {
            let failed_at = match member.health {
                Health::Up => None,
                Health::Down => Some(BEFORE),
                Health::Last => Some(BEFORE_LAST),
            };
            let new = Server { weight: member.weight, failed_at, against: 0 };
            self.known.entry(*address).or_insert(new).weight = member.weight;
        }
    }

    /// A check of `server` has `passed`, or failed. Of a server that is not listed it says nothing.
    pub fn record(&mut self, server: IpAddr, passed: bool) {
        let Some(known) = self.known.get_mut(&server) else { return };
        let (contradicts, most) = match known.failed_at {
            Some(_) => (passed, self.thresholds.rise),
            None => (!passed, self.thresholds.fall),
        };
        known.against = if contradicts { known.against + 1 } else { 0 };
        if known.against >= most {
            self.falls += u64::from(!passed);
            known.failed_at = (!passed).then_some(self.falls);
            known.against = 0;
        }
    }

    /// What is to be said of each server.
    pub fn health(&self) -> impl Iterator<Item = (IpAddr, Health)> {
        let has_weight = self.known.values().any(|server| server.weight > 0);
        let counts = move |server: &Server| server.weight > 0 || !has_weight;
        let counted = || self.known.values().filter(move |server| counts(server));
        let is_lost = counted().all(|server| server.failed_at.is_some());
        let last = counted().filter_map(|server| server.failed_at).max();
        self.known.iter().map(move |(address, server)| {
            let health = match server.failed_at {
                None => Health::Up,
                at if is_lost && counts(server) && at == last => Health::Last,
                Some(_) => Health::Down,
            };
            (*address, health)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO_THREE: Thresholds = Thresholds { rise: 2, fall: 3 };

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn listed(weights: &[u16]) -> BTreeMap<IpAddr, Member> {
        let member = |weight: &u16| Member { weight: *weight, health: Up };
        (0..).map(address).zip(weights.iter().map(member)).collect()
    }

    fn servers(weights: &[u16]) -> Servers {
        let mut servers = Servers::new(TWO_THREE);
        servers.follow(&listed(weights));
        servers
    }

    fn record(servers: &mut Servers, number: u8, results: &str) {
        results.chars().for_each(|result| servers.record(address(number), result == '+'));
    }

    fn health(servers: &Servers) -> Vec<Health> {
        servers.health().map(|(_, health)| health).collect()
    }

    use Health::{Down, Last, Up};

    #[test]
    fn it_takes_as_many_results_in_a_row_as_is_said() {
        let mut servers = servers(&[1, 1]);
        record(&mut servers, 0, "--+--");
        assert_eq!(health(&servers), [Up, Up]);
        record(&mut servers, 0, "-");
        assert_eq!(health(&servers), [Down, Up]);
        record(&mut servers, 0, "+-+");
        assert_eq!(health(&servers), [Down, Up]);
        record(&mut servers, 0, "+");
        assert_eq!(health(&servers), [Up, Up]);
    }

    #[test]
    fn the_server_that_failed_last_stays_up_until_another_is_well() {
        let mut servers = servers(&[1, 1, 1]);
        for number in [1, 0, 2] {
            record(&mut servers, number, "---");
        }
        assert_eq!(health(&servers), [Down, Down, Last]);
        // It stays the last, however long others fail on.
        record(&mut servers, 0, "---+---");
        assert_eq!(health(&servers), [Down, Down, Last]);
        record(&mut servers, 1, "++");
        assert_eq!(health(&servers), [Down, Up, Down]);
    }

    #[test]
    fn if_the_last_server_is_removed_another_takes_its_place() {
        let mut servers = servers(&[1, 1, 1]);
        for number in [2, 1, 0] {
            record(&mut servers, number, "---");
        }
        let mut rest = listed(&[1, 1, 1]);
        rest.remove(&address(0));
        servers.follow(&rest);
        assert_eq!(health(&servers), [Last, Down]);
        servers.follow(&BTreeMap::new());
        assert_eq!(health(&servers), []);
    }

    #[test]
    fn a_server_that_drains_is_no_reason_to_take_out_the_last_one_with_weight() {
        let mut servers = servers(&[1, 0]);
        record(&mut servers, 0, "---");
        assert_eq!(health(&servers), [Last, Up]);
        servers.follow(&listed(&[1, 1]));
        assert_eq!(health(&servers), [Down, Up]);
        servers.follow(&listed(&[0, 0]));
        assert_eq!(health(&servers), [Down, Up]);
        record(&mut servers, 1, "---");
        assert_eq!(health(&servers), [Down, Last]);
    }

    #[test]
    fn a_new_server_begins_with_what_the_balancer_says() {
        let mut servers = Servers::new(TWO_THREE);
        let mut all = listed(&[1, 1]);
        all.insert(address(1), Member { weight: 1, health: Down });
        servers.follow(&all);
        assert_eq!(health(&servers), [Up, Down]);
        record(&mut servers, 1, "++");
        // What is listed later is what was told to the balancer, or not yet told.
        servers.follow(&all);
        assert_eq!(health(&servers), [Up, Up]);
        all.values_mut().for_each(|member| member.health = Down);
        let mut servers = Servers::new(TWO_THREE);
        servers.follow(&all);
        assert_eq!(health(&servers), [Last, Last], "nothing says which one failed last");
        all.insert(address(1), Member { weight: 1, health: Last });
        let mut servers = Servers::new(TWO_THREE);
        servers.follow(&all);
        assert_eq!(health(&servers), [Down, Last]);
    }

    /// What happens to servers.
    #[derive(Clone, Debug)]
    enum Step {
        Result(u8, bool),
        Weight(u8, u16),
        /// Gone, if it is there, or back.
        Toggle(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let server = 0u8..4;
        prop_oneof![
            8 => (server.clone(), any::<bool>()).prop_map(|(server, is)| Step::Result(server, is)),
            1 => (server.clone(), 0u16..3).prop_map(|(server, weight)| Step::Weight(server, weight)),
            1 => server.prop_map(Step::Toggle),
        ]
    }

    /// Whether a server fails after all of its results, and since which one: the end of the latest
    /// run that is long enough decides.
    fn fails(results: &[(u64, bool)], of: Thresholds) -> Option<u64> {
        let ends_with = |end: usize, is: bool, count: u32| {
            let run = end.checked_sub(count as usize).map(|start| &results[start..end]);
            run.is_some_and(|run| run.iter().all(|(_, passed)| *passed == is))
        };
        let decided = (0..=results.len()).rev().find_map(|end| {
            if ends_with(end, false, of.fall) {
                return Some((end, true));
            }
            ends_with(end, true, of.rise).then_some((end, false))
        });
        let (_, true) = decided? else { return None };
        // Back to the first such end since it was well.
        let was_well = (0..=results.len()).rev().find(|end| ends_with(*end, true, of.rise));
        let first =
            (was_well.unwrap_or(0)..=results.len()).find(|end| ends_with(*end, false, of.fall));
        first.and_then(|end| results.get(end - 1)).map(|(time, _)| *time)
    }

    proptest! {
        #[test]
        fn health_is_that_of_a_naive_model(
            rise in 1u32..4, fall in 1u32..4, steps in prop::collection::vec(step(), 0..120),
        ) {
            let thresholds = Thresholds { rise, fall };
            let mut servers = Servers::new(thresholds);
            let mut all = listed(&[1, 1, 1, 1]);
            let mut results: BTreeMap<IpAddr, Vec<(u64, bool)>> = BTreeMap::new();
            servers.follow(&all);
            for (time, step) in (1..).zip(steps) {
                match step {
                    Step::Result(number, passed) => {
                        servers.record(address(number), passed);
                        if all.contains_key(&address(number)) {
                            results.entry(address(number)).or_default().push((time, passed));
                        }
                    }
                    Step::Weight(number, weight) => {
                        if let Some(member) = all.get_mut(&address(number)) {
                            member.weight = weight;
                        }
                        servers.follow(&all);
                    }
                    Step::Toggle(number) => {
                        if all.remove(&address(number)).is_none() {
                            all.insert(address(number), Member { weight: 1, health: Up });
                        }
                        results.remove(&address(number));
                        servers.follow(&all);
                    }
                }
                let failed = |address: &IpAddr| fails(results.get(address)?, thresholds);
                let mut counted: Vec<IpAddr> =
                    all.iter().filter(|(_, it)| it.weight > 0).map(|(at, _)| *at).collect();
                if counted.is_empty() {
                    counted = all.keys().copied().collect();
                }
                let is_lost = counted.iter().all(|at| failed(at).is_some());
                let last = counted.iter().copied().max_by_key(|at| failed(at));
                let model: Vec<(IpAddr, Health)> = all.keys().map(|at| (*at, match failed(at) {
                    None => Up,
                    Some(_) if is_lost && Some(*at) == last => Last,
                    Some(_) => Down,
                })).collect();
                prop_assert_eq!(servers.health().collect::<Vec<_>>(), model);
                let has_one = servers.health().any(|(at, health)| health != Down && counted.contains(&at));
                prop_assert!(has_one || all.is_empty(), "a service keeps a server");
            }
        }
    }
}
