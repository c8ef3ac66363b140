//! Which CPU handles the interrupts of which queue.
//!
//! A queue's worker runs best beside the CPU that receives for it, and two queues that interrupt
//! the same CPU do not scale. `/proc/interrupts` names interrupts as drivers choose. A line belongs
//! to a queue of a port if it contains the port's name or bus address as a word and its name ends
//! in a number: `eth0-TxRx-3`, `ice-eth0-TxRx-3`, `mlx5_comp3@pci:0000:3b:00.0`,
//! `PCI-MSIX-0000:00:03.0 … virtio2-input.3`.

use super::Finding;

/// An interrupt of one queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueInterrupt {
    /// Its number, as in `/proc/irq/N`.
    pub irq: u32,
    /// The queue that it serves.
    pub queue: u32,
    /// The CPUs that it may interrupt, as the kernel writes them (`0`, `2-3`).
    pub cpus: String,
}

/// Finds the interrupts of the queues of interface `name` on bus address `bus` in the text of
/// `/proc/interrupts`: the number of each, and the queue. Accepts any text.
pub(super) fn find(text: &[u8], name: &str, bus: &str) -> Vec<(u32, u32)> {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .filter_map(|line| {
            let (irq, rest) = line.split_once(':')?;
            let irq = irq.trim().parse().ok()?;
            let mine = |word: &str| !word.is_empty() && has_word(rest, word);
            if !mine(name) && !mine(bus) {
                return None;
            }
            // The last word is the name; drivers put no spaces in it.
            Some((irq, queue_of(rest.split_whitespace().next_back()?, name)?))
        })
        .collect()
}

/// The queue that an interrupt called `action` serves, if it belongs to a queue of the port `name`
/// and not to the port as a whole.
fn queue_of(action: &str, name: &str) -> Option<u32> {
    // mlx5 writes the bus address after the queue.
    let action = action.split_once('@').map_or(action, |(action, _)| action);
    // virtio_net has an interrupt for completed transmissions besides the one for arrivals; mlx5
    // numbers interrupts for events, commands and pages, too.
    let other = action.starts_with("mlx5_") && !action.starts_with("mlx5_comp");
    if other || action.contains("output") {
        return None;
    }
    let head = action.trim_end_matches(|c: char| c.is_ascii_digit());
    // `eth0` alone is not a queue: the number is part of the name.
    (!head.is_empty() && !name.starts_with(head)).then(|| action[head.len()..].parse().ok())?
}

/// Whether `text` contains `word` with no letter or digit beside it.
fn has_word(text: &str, word: &str) -> bool {
    let beside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        !beside(text[..at].chars().next_back()) && !beside(text[at + word.len()..].chars().next())
    })
}

pub(super) fn judge(name: &str, interrupts: &[QueueInterrupt], cpus: u32) -> Vec<Finding> {
    if interrupts.is_empty() {
        return Vec::new();
    }
    let layout: Vec<_> = interrupts
        .iter()
        .map(|QueueInterrupt { irq, queue, cpus }| format!("{queue} on CPU {cpus} (IRQ {irq})"))
        .collect();
    let mut findings = vec![Finding::ok(name, format!("queues: {}", layout.join(", ")))];
    let crowded = |one: &&QueueInterrupt| {
        interrupts.iter().any(|other| other.queue < one.queue && other.cpus == one.cpus)
    };
    let free = |cpu: &u32| interrupts.iter().all(|one| one.cpus != cpu.to_string());
    // With fewer CPUs than queues some must share.
    if let (Some(one), Some(cpu)) = (interrupts.iter().find(crowded), (0..cpus).find(free)) {
        let QueueInterrupt { irq, queue, cpus } = one;
        let what = format!("queue {queue} interrupts CPU {cpus}, as another queue does");
        let remedy = format!("echo {cpu} > /proc/irq/{irq}/smp_affinity_list");
        findings.push(Finding::note(name, what).remedy(remedy));
    }
    findings
}

pub(super) fn judge_balancer(runs: bool) -> Option<Finding> {
    runs.then(|| {
        let what = "irqbalance runs and moves the ports' interrupts between CPUs at will";
        Finding::note("cpu", what).remedy("systemctl disable --now irqbalance")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use proptest::prelude::*;

    #[test]
    fn interrupts_are_found_under_the_names_that_drivers_give() {
        for (action, name, bus, queue) in [
            ("eth0-TxRx-3", "eth0", "", Some(3)),
            ("ice-eth0-TxRx-11", "eth0", "", Some(11)),
            ("i40e-enp1s0f1-TxRx-0", "enp1s0f1", "", Some(0)),
            ("mlx5_comp3@pci:0000:3b:00.0", "eth0", "0000:3b:00.0", Some(3)),
            ("mlx5_async0@pci:0000:3b:00.0", "eth0", "0000:3b:00.0", None),
            ("PCI-MSIX-0000:00:03.0 1-edge virtio2-input.1", "eth0", "0000:00:03.0", Some(1)),
            ("PCI-MSIX-0000:00:03.0 2-edge virtio2-output.1", "eth0", "0000:00:03.0", None),
            ("PCI-MSIX-0000:00:03.0 0-edge virtio2-config", "eth0", "0000:00:03.0", None),
            ("PCI-MSIX-0000:00:04.0 1-edge virtio3-input.1", "eth0", "0000:00:03.0", None),
            ("eth0", "eth0", "", None),
            ("eth01-TxRx-3", "eth0", "", None),
            ("eth1-TxRx-3", "eth0", "", None),
        ] {
            let found = find(format!(" 38: 0 2826 {action}\n").as_bytes(), name, bus);
            assert_eq!(found, queue.map(|queue| (38, queue)).as_slice(), "{action}");
        }
    }

    #[test]
    fn the_kernel_s_table_reads_line_by_line() {
        let text = b"           CPU0       CPU1\n\
            \x20 40:       1527          0  PCI-MSIX-0000:00:04.0   1-edge      virtio3-input.0\n\
            \x20 42:          0       3399  PCI-MSIX-0000:00:04.0   3-edge      virtio3-input.1\n\
            NMI:          0          0   Non-maskable interrupts\n";
        assert_eq!(find(text, "eth0", "0000:00:04.0"), [(40, 0), (42, 1)]);
    }

    #[test]
    fn two_queues_on_one_cpu_are_noted() {
        let on = |cpus: [&str; 2]| {
            let of = |queue: u32| QueueInterrupt {
                irq: 40 + queue,
                queue,
                cpus: cpus[queue as usize].into(),
            };
            judge("a", &[of(0), of(1)], 2)
        };
        assert_eq!(on(["0", "1"]).len(), 1);
        let crowded = on(["0", "0"]);
        assert_eq!(crowded[1].severity, Severity::Note);
        assert_eq!(crowded[1].remedy.as_deref(), Some("echo 1 > /proc/irq/41/smp_affinity_list"));
    }

    #[test]
    fn a_port_without_interrupts_is_not_spoken_of() {
        assert_eq!(judge("a", &[], 2), []);
        assert_eq!(judge_balancer(false), None);
    }

    proptest! {
        #[test]
        fn any_bytes_read_without_panic(
            text in proptest::collection::vec(any::<u8>(), 0..300),
            name in ".{0,8}",
        ) {
            let _ = find(&text, &name, "0000:00:03.0");
        }

        #[test]
        fn any_line_reads_without_panic(action in ".{0,30}", name in "[a-z0-9-]{0,5}") {
            let _ = find(format!("1: {action} {name}").as_bytes(), &name, &name);
            let _ = queue_of(&action, &name);
        }
    }
}
