//! Measures the cost of parsing a frame's headers: `cargo run --release -p narrows-packet --example
//! dissect_cost`.
//!
//! 256 frames of each kind, all in cache, are parsed repeatedly; the best of 20 rounds counts.

use narrows_packet::dissect::{Dissector, rewrite};
use narrows_packet::{Headers, Rewrite};
use std::hint::black_box;
use std::time::Instant;

const FRAMES: usize = 256;
const TURNS: usize = 400;
const ROUNDS: usize = 20;

const STATIONS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn tcp_over_v4(index: u8) -> Vec<u8> {
    let ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, index, 192, 0, 2, 1];
    let mut tcp = [0; 20];
    tcp[..4].copy_from_slice(&[0x9c, index, 1, 187]);
    tcp[12..14].copy_from_slice(&[0x50, 0x10]);
    [&ip[..], &tcp].concat()
}

fn tcp_over_v6(index: u8) -> Vec<u8> {
    let mut ip = [0; 40];
    ip[0] = 0x60;
    ip[4..8].copy_from_slice(&[0, 20, 6, 64]);
    ip[23] = index;
    ip[39] = 1;
    [&ip[..], &tcp_over_v4(index)[20..]].concat()
}

fn frame(between: &[u8], packet: &[u8]) -> Vec<u8> {
    [&STATIONS, between, packet].concat()
}

fn vxlan(index: u8) -> Vec<u8> {
    let inner = frame(&[8, 0], &tcp_over_v4(index));
    let ip = [0x45, 0, 0, 90, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    let between = [0xc0, index, 0x12, 0xb5, 0, 70, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
    frame(&[8, 0], &[&ip[..], &between, &inner].concat())
}

/// Nanoseconds per call of `read`.
fn cost<T>(frames: &[Vec<u8>], mut read: impl FnMut(&[u8]) -> T) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for _ in 0..TURNS {
            for frame in frames {
                black_box(read(black_box(frame)));
            }
        }
        let taken = begun.elapsed().as_nanos() as f64;
        best = best.min(taken / (TURNS * frames.len()) as f64);
    }
    best
}

fn main() {
    let of = |make: &dyn Fn(u8) -> Vec<u8>| -> Vec<Vec<u8>> {
        (0..FRAMES).map(|index| make(index as u8)).collect()
    };
    let plain = of(&|index| frame(&[8, 0], &tcp_over_v4(index)));
    let tagged = of(&|index| frame(&[0x81, 0, 0, 7, 8, 0], &tcp_over_v4(index)));
    let six = of(&|index| frame(&[0x86, 0xdd], &tcp_over_v6(index)));
    let tunnel = of(&vxlan);
    let dissector = Dissector::new(black_box(0x5eed));
    let headers = |inner: bool| move |frame: &[u8]| -> Headers { dissector.headers(frame, inner) };
    println!("plain            {:6.1} ns", cost(&plain, headers(false)));
    println!("plain, inner     {:6.1} ns", cost(&plain, headers(true)));
    println!("VLAN             {:6.1} ns", cost(&tagged, headers(false)));
    println!("IPv6             {:6.1} ns", cost(&six, headers(false)));
    println!("VXLAN, outermost {:6.1} ns", cost(&tunnel, headers(false)));
    println!("VXLAN, inner     {:6.1} ns", cost(&tunnel, headers(true)));
    println!("acknowledgement  {:6.1} ns", cost(&plain, |frame| dissector.acknowledgement(frame)));
    let mut written = plain[0].clone();
    let wash = Rewrite::new(true, true);
    println!("rewrite          {:6.1} ns", cost(&plain, |_| rewrite(&mut written, wash)));
}
