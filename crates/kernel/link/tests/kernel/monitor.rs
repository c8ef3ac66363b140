//! Changes of interfaces are noticed.

use crate::bed::Bed;
use narrows_link::{LinkEvent, LinkMonitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// Waits on the descriptor for an event that `wanted` accepts, skipping others.
pub fn expect<T>(monitor: &mut LinkMonitor, wanted: impl Fn(&LinkEvent) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut seen = Vec::new();
    while Instant::now() < deadline {
        match monitor.next_event() {
            Some(event) => match wanted(&event) {
                Some(value) => return value,
                None => seen.push(event),
            },
            None => {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                let mut readable = [PollFd::new(&*monitor, PollFlags::IN)];
                poll(&mut readable, Some(&second)).unwrap();
            }
        }
    }
    panic!("the event did not come; these did: {seen:#?}");
}

#[test]
fn nothing_happening_is_reported_as_nothing() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    while monitor.next_event().is_some() {}
    assert_eq!(monitor.next_event(), None);
}

#[test]
fn a_change_of_mtu_is_reported_with_both_values() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    bed.shaper.ip("link set sa mtu 1400");
    let (before, now) = expect(&mut monitor, |event| match event {
        LinkEvent::Changed { before, now } if now.status.mtu != before.status.mtu => {
            Some((before.status.mtu, now.status.mtu))
        }
        _ => None,
    });
    assert_eq!((before, now), (1500, 1400));
}

#[test]
fn a_change_of_queues_is_reported() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    bed.shaper.must("ethtool -L sa rx 2 tx 2");
    let queues = expect(&mut monitor, |event| match event {
        LinkEvent::Changed { now, .. } if now.queues.rx == 2 => Some(now.queues),
        _ => None,
    });
    assert_eq!(queues.pairs(), 2);
}

#[test]
fn a_change_of_queues_that_leaves_the_carrier_alone_is_reported_too() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link set sa down");
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    bed.shaper.must("ethtool -L sa rx 3 tx 3");
    let queues = expect(&mut monitor, |event| match event {
        LinkEvent::Changed { now, .. } if now.queues.rx == 3 => Some(now.queues),
        _ => None,
    });
    assert_eq!(queues.pairs(), 3);
}

#[test]
fn going_down_and_coming_up_are_reported() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    let up = |wanted: bool| {
        move |event: &LinkEvent| match event {
            LinkEvent::Changed { now, .. } if now.status.up == wanted => Some(()),
            _ => None,
        }
    };
    bed.shaper.ip("link set sa down");
    expect(&mut monitor, up(false));
    bed.shaper.ip("link set sa up");
    expect(&mut monitor, up(true));
}

#[test]
fn a_lost_carrier_is_reported() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    bed.client.ip("link set v0 down");
    expect(&mut monitor, |event| match event {
        LinkEvent::Changed { now, .. } if now.status.name == "sa" && !now.status.carrier => {
            Some(())
        }
        _ => None,
    });
}

#[test]
fn a_removed_interface_and_its_return_are_reported() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    bed.client.ip("link del v0");
    let removed = expect(&mut monitor, |event| match event {
        LinkEvent::Removed { ifindex, name } if name == "sa" => Some(*ifindex),
        _ => None,
    });
    bed.shaper.ip("link add name sa type veth peer name sx");
    let added = expect(&mut monitor, |event| match event {
        LinkEvent::Added(now) if now.status.name == "sa" => Some(now.status.ifindex),
        _ => None,
    });
    assert_ne!(removed, added);
}

#[test]
fn joining_and_leaving_a_bridge_are_changes_of_the_master_and_no_removal() {
    let Some(bed) = Bed::new() else { return };
    bed.shaper.ip("link add name br9 type bridge");
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    let joined = |wanted: bool| {
        move |event: &LinkEvent| match event {
            LinkEvent::Removed { .. } => panic!("{event:?}"),
            LinkEvent::Changed { now, .. } if now.status.name == "sa" => {
                (now.status.master.is_some() == wanted).then_some(())
            }
            _ => None,
        }
    };
    bed.shaper.ip("link set sa master br9");
    expect(&mut monitor, joined(true));
    bed.shaper.ip("link set sa nomaster");
    expect(&mut monitor, joined(false));
}

#[test]
fn an_overrun_is_said_and_survived() {
    let Some(bed) = Bed::new() else { return };
    let mut monitor = bed.shaper.inside(LinkMonitor::open).unwrap();
    // A batch of changes larger than any default receive buffer.
    let batch: String =
        (0..2000).map(|i| format!("link set sa mtu {}\n", 1000 + i % 400)).collect();
    let file = std::env::temp_dir().join(format!("nrw-link-{}-batch", std::process::id()));
    std::fs::write(&file, batch).unwrap();
    bed.shaper.ip(&format!("-batch {}", file.display()));
    let _ = std::fs::remove_file(&file);
    expect(&mut monitor, |event| (*event == LinkEvent::Overrun).then_some(()));
    while monitor.next_event().is_some() {}
    bed.shaper.ip("link set sa mtu 900");
    expect(&mut monitor, |event| match event {
        LinkEvent::Changed { now, .. } if now.status.mtu == 900 => Some(()),
        _ => None,
    });
}
