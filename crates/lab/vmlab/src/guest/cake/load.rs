//! The loads, and the figures measured under them.

use super::path::OTHER_IP;
use super::round_trips;
use crate::cake::{Figure, Load, MANY, ONE_WAY_MS};
use anyhow::{Context, Result};
use narrows_testbed::Testbed;
use narrows_testbed::bed::SERVER_IP;
use narrows_testbed::probe::now;
use narrows_testbed::stream::{Arrival, Running, Stream};
use narrows_testbed::tcp::Flows;
use narrows_units::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::thread;
use std::time::Duration;

/// How long a load runs before it is measured: TCP has found its rate.
const WARM_UP: Duration = Duration::from_millis(800);
/// The length of the measurement, in bits at the limit.
const WINDOW: u64 = 50_000_000;
/// The assumed limit if there is none, in Mbit/s.
const FAST: u64 = 100;
/// The first port; it takes the first queue.
const PORT: u16 = 5000;
/// Frames of bulk, and of the flow marked EF.
const FULL: usize = 1514;
const SMALL: usize = 214;
/// The DSCP EF, and the traffic of such a flow: a frame every 5 ms.
const EF: u8 = 46;
const EF_BITS: u64 = SMALL as u64 * 8 * 200;

type Figures = BTreeMap<Figure, f64>;

/// Sends `load` over `bed` and measures.
pub fn measure(bed: &Testbed, load: Load, limit: Option<u64>, round: u32) -> Result<Figures> {
    let bits = limit.unwrap_or(FAST) * 1_000_000;
    let of_limit = |percent: u64| bits * percent / 100;
    let window = Duration::from_secs(WINDOW) / u32::try_from(bits)?;
    let seed = u64::from(round);
    // One frame of five; together a tenth above the limit.
    let little = stream(1, FULL, of_limit(22));
    match load {
        Load::Unlimited => {
            let mut figures = tcp(bed, window, seed, false)?;
            figures.retain(|figure, _| *figure == Figure::Delivered);
            Ok(figures)
        }
        Load::Alone => light(bed, window, seed, &[little]),
        Load::Light => light(bed, window, seed, &[little, stream(0, FULL, of_limit(88))]),
        Load::Tcp => tcp(bed, window, seed, false),
        Load::TcpEcn => tcp(bed, window, seed, true),
        Load::HostsTcp => hosts_tcp(bed, window),
        Load::HostsUdp => hosts_udp(bed, window, seed, bits),
    }
}

/// The port for `queue`; numbers from 4 on wrap around.
fn to(queue: u16) -> SocketAddrV4 {
    SocketAddrV4::new(SERVER_IP, PORT + queue)
}

/// The other host's port for `queue`.
fn to_other(queue: u16) -> SocketAddrV4 {
    SocketAddrV4::new(OTHER_IP, PORT + queue)
}

fn stream(queue: u16, frame: usize, bits: u64) -> Stream {
    Stream { to: to(queue), dscp: 0, frame, rate: Rate::from_bits_per_sec(bits) }
}

/// Streams; the first is the light one.
fn light(bed: &Testbed, window: Duration, seed: u64, streams: &[Stream]) -> Result<Figures> {
    let (arrivals, span) = udp(bed, window, seed, streams)?;
    let mut figures = delays(&arrivals[0], &span)?;
    let bits: f64 = arrivals.iter().map(|arrivals| bits_within(arrivals, &span)).sum();
    figures.insert(Figure::Delivered, mbit(bits, &span));
    Ok(figures)
}

/// Many TCP flows, and one marked EF.
fn tcp(bed: &Testbed, window: Duration, seed: u64, ecn: bool) -> Result<Figures> {
    bed.client().set("ipv4.tcp_ecn", if ecn { "1" } else { "0" })?;
    let [client, server] = bed.ends();
    let addresses: Vec<SocketAddrV4> = (0..MANY).map(to).collect();
    let flows = Flows::to(client, server.namespace, &addresses)?.start()?;
    let marked = Stream { dscp: EF, ..stream(MANY, SMALL, EF_BITS) };
    let marked = marked.start(client, server.namespace, seed)?;
    thread::sleep(WARM_UP);
    let from = now()?;
    let before: u64 = flows.received().iter().sum();
    let round_trips = round_trips::of_all(client.namespace, window)?;
    let after: u64 = flows.received().iter().sum();
    let span = from..now()?;
    flows.stop()?;
    let mut figures = delays(&marked.stop()?, &span)?;
    let mut added: Vec<f64> =
        round_trips.into_iter().map(|took| millis(took) - 2.0 * ONE_WAY_MS as f64).collect();
    figures.insert(Figure::QueueMedian, percentile(&mut added, 50)?);
    figures.insert(Figure::QueueP99, percentile(&mut added, 99)?);
    figures.insert(Figure::Delivered, mbit((after - before) as f64 * 8.0, &span));
    Ok(figures)
}

/// One TCP flow to a host, many to another.
fn hosts_tcp(bed: &Testbed, window: Duration) -> Result<Figures> {
    bed.client().set("ipv4.tcp_ecn", "0")?;
    let [client, server] = bed.ends();
    let addresses: Vec<SocketAddrV4> =
        std::iter::once(to_other(0)).chain((0..MANY).map(to)).collect();
    let flows = Flows::to(client, server.namespace, &addresses)?.start()?;
    thread::sleep(WARM_UP);
    let from = now()?;
    let before = flows.received();
    thread::sleep(window);
    let after = flows.received();
    let span = from..now()?;
    flows.stop()?;
    let bits: Vec<f64> =
        before.iter().zip(after).map(|(before, after)| (after - before) as f64 * 8.0).collect();
    Ok(share(&bits, &span))
}

/// One UDP flow to a host, many to another.
fn hosts_udp(bed: &Testbed, window: Duration, seed: u64, bits: u64) -> Result<Figures> {
    let one = Stream { to: to_other(0), ..stream(0, FULL, bits) };
    let many = (0..MANY).map(|queue| stream(queue, FULL, bits / u64::from(MANY)));
    let streams: Vec<Stream> = std::iter::once(one).chain(many).collect();
    let (arrivals, span) = udp(bed, window, seed, &streams)?;
    let bits: Vec<f64> = arrivals.iter().map(|arrivals| bits_within(arrivals, &span)).collect();
    Ok(share(&bits, &span))
}

/// The arrivals of each stream, and the measured span of time.
fn udp(
    bed: &Testbed,
    window: Duration,
    seed: u64,
    streams: &[Stream],
) -> Result<(Vec<Vec<Arrival>>, Range<Duration>)> {
    let [client, server] = bed.ends();
    let seeds = (seed * streams.len() as u64)..;
    let start = |(stream, seed): (&Stream, u64)| stream.start(client, server.namespace, seed);
    let running = streams.iter().zip(seeds).map(start).collect::<Result<Vec<_>>>()?;
    thread::sleep(WARM_UP);
    let span = now()?..now()? + window;
    thread::sleep(window);
    let arrivals = running.into_iter().map(Running::stop).collect::<Result<_>>()?;
    Ok((arrivals, span))
}

/// The added delays of packets that were sent within the window.
fn delays(arrivals: &[Arrival], span: &Range<Duration>) -> Result<Figures> {
    let within = arrivals.iter().filter(|arrival| span.contains(&arrival.sent));
    let delay = |arrival: &Arrival| {
        millis(arrival.arrived.saturating_sub(arrival.sent)) - ONE_WAY_MS as f64
    };
    let mut delays: Vec<f64> = within.map(delay).collect();
    let median = percentile(&mut delays, 50)?;
    let p99 = percentile(&mut delays, 99)?;
    Ok([(Figure::LightMedian, median), (Figure::LightP99, p99)].into())
}

/// Bits of full frames that arrived within the window.
fn bits_within(arrivals: &[Arrival], span: &Range<Duration>) -> f64 {
    let within = arrivals.iter().filter(|arrival| span.contains(&arrival.arrived));
    (within.count() * FULL * 8) as f64
}

/// The share of the first.
fn share(bits: &[f64], span: &Range<Duration>) -> Figures {
    let all: f64 = bits.iter().sum();
    [(Figure::Share, 100.0 * bits[0] / all), (Figure::Delivered, mbit(all, span))].into()
}

fn mbit(bits: f64, span: &Range<Duration>) -> f64 {
    bits / (span.end - span.start).as_secs_f64() / 1e6
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The percentile `percent`.
fn percentile(values: &mut [f64], percent: usize) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().context("nothing was measured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50).unwrap(), 100.0);
        assert_eq!(percentile(&mut values, 99).unwrap(), 198.0);
        assert!(percentile(&mut [], 99).is_err());
    }

    #[test]
    fn only_arrivals_within_the_window_count() {
        let at = |millis| {
            let arrived = Duration::from_millis(millis);
            Arrival { sent: Duration::ZERO, arrived }
        };
        let arrivals = [at(5), at(10), at(15), at(20)];
        let span = Duration::from_millis(10)..Duration::from_millis(20);
        assert_eq!(bits_within(&arrivals, &span), 2.0 * 1514.0 * 8.0);
        assert_eq!(mbit(1e6, &(Duration::ZERO..Duration::from_millis(500))), 2.0);
    }
}
