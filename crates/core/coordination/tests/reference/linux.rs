//! A model of Linux's rule: `cake_mq` counts its siblings at each attempt to dequeue, before it
//! knows whether anything may leave. So does an arrival that finds the queue held back. (Patch
//! series "Multi-queue aware sch_cake", `cake_dequeue`.)

use crate::{END, FRAME, Pattern, QUEUES, SETTLE};

/// Between two counts, in ns.
const SYNC_TIME: u64 = 200_000;

#[derive(Clone)]
struct Queue {
    pattern: Pattern,
    queued: u32,
    /// When the shaper lets the next packet go.
    next_packet: u64,
    last_count: u64,
    last_sent: u64,
    active: u64,
    arrival: u64,
    sent: u64,
}

/// The total departures at `limit` bit/s, in percent of it, when `loads` (also in percent of it)
/// are offered to the first queues.
pub fn delivered(limit: u64, loads: &[u64], pattern: Pattern) -> f64 {
    let time = u64::from(FRAME) * 8_000_000_000 / limit;
    let idle = Queue {
        pattern,
        queued: 0,
        next_packet: 0,
        last_count: 0,
        last_sent: 0,
        active: 0,
        arrival: END.0,
        sent: 0,
    };
    let mut queues = vec![idle; QUEUES];
    for (number, queue) in queues.iter_mut().enumerate().take(loads.len()) {
        queue.arrival = number as u64 * 17_389;
    }
    loop {
        let due = |queue: &Queue| match queue.queued {
            0 => queue.arrival,
            _ => queue.arrival.min(queue.next_packet),
        };
        let number = (0..QUEUES).min_by_key(|number| due(&queues[*number])).unwrap();
        let now = due(&queues[number]);
        if now >= END.0 {
            break;
        }
        if queues[number].arrival == now {
            let queue = &mut queues[number];
            queue.arrival += queue.pattern.next(u128::from(time * 100 / loads[number])) as u64;
            if queue.queued == 0 {
                queue.next_packet = queue.next_packet.max(now);
            }
            queue.queued = (queue.queued + 1).min(40);
        }
        if now - queues[number].last_count >= SYNC_TIME {
            let since = queues[number].last_count;
            let active = |queue: &&Queue| queue.queued > 0 || queue.last_sent > since;
            let others = queues.iter().enumerate().filter(|(other, _)| *other != number);
            let count = others.map(|(_, queue)| queue).filter(active).count();
            queues[number].active = 1 + count as u64;
            queues[number].last_count = now;
        }
        let queue = &mut queues[number];
        if queue.queued > 0 && queue.next_packet <= now {
            queue.queued -= 1;
            queue.next_packet += time * queue.active;
            queue.last_sent = now;
            queue.sent += u64::from(now >= SETTLE.0);
        }
    }
    let sent: u64 = queues.iter().map(|queue| queue.sent).sum();
    100.0 * (sent * time) as f64 / (END - SETTLE).0 as f64
}
