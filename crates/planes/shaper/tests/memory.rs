//! The memory of classes without traffic.

use narrows_policy::{Plan, Policy, PortFacts};
use narrows_qdisc::Slot;
use narrows_shaper::Installation;
use narrows_tc::{Host, load};
use std::fmt::Write;

const DEV: &str = "port";
const QUEUES: usize = 4;
const CLASSES: u32 = 20_000;

/// Bytes per class in the policy, the plan, the installation, the tree and on the queues, as
/// requested; the allocator adds a tenth.
const MOST: i64 = 460;

struct Port;

impl Host for Port {
    fn devices(&self) -> Vec<String> {
        vec![DEV.to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let queues = u16::try_from(QUEUES).ok();
        (dev == DEV).then_some(PortFacts { queues, ..PortFacts::ETHERNET })
    }

    fn policy(&self) -> Policy {
        Policy::default()
    }

    fn apply(&mut self, _: Policy) -> Result<(), String> {
        Ok(())
    }
}

/// Classes below a root.
fn classes() -> String {
    let mut text = format!("qdisc replace dev {DEV} root handle 1: htb\n");
    let class = format!("class replace dev {DEV} parent 1");
    writeln!(text, "{class}: classid 1:1 htb rate 10gbit").unwrap();
    for number in 2..CLASSES + 2 {
        writeln!(text, "{class}:1 classid 1:{number:x} htb rate 5mbit ceil 1gbit").unwrap();
    }
    text
}

#[test]
fn an_idle_class_takes_little_memory() {
    let (text, mut kept) = (classes(), None);
    let memory = allocation_counter::measure(|| {
        let policy = load(&text, "classes", &Port).unwrap();
        let plan = Plan::of(policy.port(DEV), QUEUES).unwrap();
        let (installed, specs) = Installation::reconcile(plan, None);
        installed.commit();
        let queues: Vec<Slot> = specs.into_iter().map(Slot::new).collect();
        kept = Some((policy, installed, queues));
    });
    let each = memory.bytes_current / i64::from(CLASSES);
    assert!(each <= MOST, "{each} bytes");
}
