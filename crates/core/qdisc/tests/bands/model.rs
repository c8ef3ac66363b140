//! What `prio`, `drr` and `ets` are, written down as plainly as possible: packet by packet, as the
//! kernel's `sch_prio.c`, `sch_drr.c` and `sch_ets.c` do it.

use narrows_qdisc::bands::{Class, Config};
use std::collections::{BTreeMap, VecDeque};

/// Packets of one class: which, and how long.
type Queue = VecDeque<(u32, u32)>;

pub struct Model {
    pub config: Config,
    pub queues: BTreeMap<u16, Queue>,
    /// Backlogged classes that take turns, each with its deficit.
    active: VecDeque<(u16, u32)>,
    /// The limit of a class, in packets.
    limit: usize,
}

impl Model {
    pub fn new(config: Config, limit: usize) -> Self {
        let queues = config.classes.iter().map(|class| (class.id, Queue::new())).collect();
        Self { config, queues, active: VecDeque::new(), limit }
    }

    fn class(&self, id: u16) -> Option<Class> {
        self.config.classes.iter().copied().find(|class| class.id == id)
    }

    /// Whether it is taken.
    pub fn enqueue(&mut self, class: u32, id: u32, len: u32) -> bool {
        let asked = u16::try_from(class).ok().and_then(|class| self.class(class));
        let Some(class) = asked.or_else(|| self.class(self.config.otherwise?)) else {
            return false;
        };
        let queue = self.queues.get_mut(&class.id).unwrap();
        if queue.len() == self.limit {
            return false;
        }
        queue.push_back((id, len));
        if let (1, Some(quantum)) = (queue.len(), class.quantum) {
            self.active.push_back((class.id, quantum));
        }
        true
    }

    pub fn dequeue(&mut self) -> Option<u32> {
        for class in self.config.classes.iter().take_while(|class| class.quantum.is_none()) {
            if let Some((id, _)) = self.queues.get_mut(&class.id).unwrap().pop_front() {
                return Some(id);
            }
        }
        loop {
            let (class, deficit) = self.active.pop_front()?;
            let quantum = self.class(class).unwrap().quantum.unwrap();
            let queue = self.queues.get_mut(&class).unwrap();
            let &(id, len) = queue.front().unwrap();
            if len > deficit {
                self.active.push_back((class, deficit + quantum));
                continue;
            }
            queue.pop_front();
            if !queue.is_empty() {
                self.active.push_front((class, deficit - len));
            }
            return Some(id);
        }
    }

    /// Takes other quanta over, for the same classes.
    pub fn change_quanta(&mut self, config: Config) {
        self.config = config;
    }
}
