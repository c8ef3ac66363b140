//! A program at the egress of a device, in a namespace of its own, by a filter: any kernel takes
//! it.
#![allow(unsafe_code)]

use super::*;
use crate::slow_path::SlowPathShare;
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::net::UdpSocket;
use std::process::Command;
use std::thread;

/// Runs `work` in a namespace with a device `out` through which a few addresses are reached. It
/// goes with its thread.
fn in_bed(work: impl FnOnce(u32) + Send) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: network namespaces and BPF programs need root");
    }
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: no memory or descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            run("ip link add name out type veth peer name far");
            run("ip link set far up");
            run("ip link set out up");
            run("ip addr add 192.0.2.1/24 dev out");
            run("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev out nud permanent");
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            work(name_to_index(socket, "out").unwrap());
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs a command that must succeed, and returns what it says.
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn filters() -> String {
    run("tc filter show dev out egress")
}

/// A program that counts what leaves.
struct Counting {
    share: SlowPathShare,
    program: OwnedFd,
}

impl Counting {
    fn new() -> Self {
        let share = SlowPathShare::new().unwrap();
        let program = share.program().unwrap().program().try_clone_to_owned().unwrap();
        Self { share, program }
    }

    fn attach(&self, device: u32) -> AtEgress {
        AtEgress::attach_by_filter(self.program.as_fd(), device).unwrap()
    }

    /// How many of ten packets it sees.
    fn sees(&self) -> u64 {
        let seen = || self.share.counters().sent_packets;
        let (before, socket) = (seen(), UdpSocket::bind("192.0.2.1:0").unwrap());
        for _ in 0..10 {
            socket.send_to(b"narrows", "192.0.2.2:9").unwrap();
        }
        seen() - before
    }
}

#[test]
fn it_sees_what_leaves_and_leaves_nothing_behind() {
    in_bed(|device| {
        let counting = Counting::new();
        let attached = counting.attach(device);
        assert_eq!(counting.sees(), 10);
        assert!(filters().contains("narrows with clsact direct-action"), "{}", filters());
        attached.detach();
        assert_eq!(counting.sees(), 0);
        assert!(!run("tc qdisc show dev out").contains("clsact"));
    });
}

#[test]
fn one_that_was_left_does_nothing_and_the_next_takes_its_place() {
    in_bed(|device| {
        let counting = Counting::new();
        // As if the process was killed: all that it had open is closed.
        drop(counting.attach(device));
        // The kernel empties the array a moment later.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while counting.sees() > 0 {
            assert!(std::time::Instant::now() < deadline, "it still counts");
        }
        assert_eq!(filters().matches("direct-action").count(), 1);
        let next = Counting::new();
        let attached = next.attach(device);
        assert_eq!((next.sees(), counting.sees()), (10, 0));
        assert_eq!(filters().matches("direct-action").count(), 1);
        attached.detach();
        assert!(!run("tc qdisc show dev out").contains("clsact"));
    });
}

#[test]
fn another_process_replaces_it_and_removes_it_at_its_end() {
    in_bed(|device| {
        let (old, new) = (Counting::new(), Counting::new());
        let held = old.attach(device);
        assert_eq!(old.sees(), 10);
        let descriptor = held.as_fd().try_clone_to_owned().unwrap();
        let taken = AtEgress::take_over(descriptor, new.program.as_fd(), device).unwrap();
        drop(held);
        assert_eq!((new.sees(), old.sees()), (10, 0));
        taken.detach();
        assert_eq!(new.sees(), 0);
        assert_eq!(filters(), "");
    });
}

#[test]
fn filters_and_qdiscs_of_others_stay_and_come_behind() {
    in_bed(|device| {
        run("tc qdisc add dev out clsact");
        run("tc filter add dev out ingress pref 3 protocol ip u32 match u32 0 0 flowid :1");
        run("tc filter add dev out egress pref 7 protocol ip u32 match u32 0 0 flowid :1");
        let before = [filters(), run("tc filter show dev out ingress")];
        let counting = Counting::new();
        let attached = counting.attach(device);
        assert!(filters().starts_with("filter protocol all pref 6 bpf"), "{}", filters());
        assert_eq!(counting.sees(), 10);
        attached.detach();
        assert_eq!([filters(), run("tc filter show dev out ingress")], before);
    });
}

#[test]
fn a_clsact_that_others_use_by_now_stays() {
    in_bed(|device| {
        let attached = Counting::new().attach(device);
        run("tc filter add dev out ingress pref 3 protocol ip u32 match u32 0 0 flowid :1");
        attached.detach();
        assert!(run("tc filter show dev out ingress").contains("pref 3"));
        assert_eq!(filters(), "");
    });
}

#[test]
fn an_ingress_qdisc_has_no_egress_and_is_named() {
    in_bed(|device| {
        run("tc qdisc add dev out ingress");
        let program = Counting::new().program;
        let error = AtEgress::attach_by_filter(program.as_fd(), device).err().unwrap().to_string();
        assert!(error.starts_with("out has the qdisc ingress, where clsact is needed"), "{error}");
        assert_eq!(run("tc filter show dev out ingress"), "");
    });
}
