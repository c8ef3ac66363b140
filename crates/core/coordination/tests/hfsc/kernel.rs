//! The kernel's `hfsc` (`net/sched/sch_hfsc.c`), naively: the oracle.
//!
//! Every list is searched from end to end, and all arithmetic is in floating point. Where two
//! classes are equally good, or nearly so, any of them may be next; the model follows the choice
//! that was made.

use narrows_qdisc::hfsc::Curve;
use std::collections::BTreeMap;

/// Times that are no further apart count as equal: ours are whole nanoseconds.
const NEAR: f64 = 4.0;

const INFINITE: f64 = f64::MAX;

/// Bytes a nanosecond.
fn slope(rate: narrows_units::Rate) -> f64 {
    rate.bits_per_sec() as f64 / 8e9
}

/// `struct runtime_sc`
#[derive(Clone, Copy, Default)]
struct Runtime {
    x: f64,
    y: f64,
    dx: f64,
    dy: f64,
    m1: f64,
    m2: f64,
}

impl Runtime {
    /// `rtsc_init`
    fn new(curve: Curve, x: f64, y: f64) -> Self {
        let (m1, m2, dx) = (slope(curve.m1), slope(curve.m2), curve.d.0 as f64);
        Self { x, y, dx, dy: dx * m1, m1, m2 }
    }

    /// `rtsc_x2y`
    fn y_at(&self, x: f64) -> f64 {
        if x <= self.x {
            self.y
        } else if x <= self.x + self.dx {
            self.y + (x - self.x) * self.m1
        } else {
            self.y + self.dy + (x - self.x - self.dx) * self.m2
        }
    }

    /// `rtsc_y2x`
    fn x_at(&self, y: f64) -> f64 {
        let span = |y: f64, m: f64| if m == 0.0 { INFINITE } else { y / m };
        if y < self.y {
            self.x
        } else if y <= self.y + self.dy {
            let within = if self.dy == 0.0 { self.dx } else { span(y - self.y, self.m1) };
            self.x + within
        } else {
            self.x + self.dx + span(y - self.y - self.dy, self.m2)
        }
    }

    /// `rtsc_min`
    fn min(&mut self, curve: Curve, x: f64, y: f64) {
        let new = Self::new(curve, x, y);
        let y1 = self.y_at(x);
        if new.m1 <= new.m2 {
            if y1 >= y {
                (self.x, self.y) = (x, y);
            }
            return;
        }
        if y1 <= y {
            return;
        }
        if self.y_at(x + new.dx) >= y + new.dy {
            (self.x, self.y, self.dx, self.dy) = (x, y, new.dx, new.dy);
            return;
        }
        let mut dx = (y1 - y) / (new.m1 - new.m2);
        if self.x + self.dx > x {
            dx += self.x + self.dx - x;
        }
        (self.x, self.y, self.dx, self.dy) = (x, y, dx, dx * new.m1);
    }
}

/// `struct hfsc_class`
#[derive(Default)]
struct Class {
    parent: Option<u32>,
    rsc: Option<Curve>,
    fsc: Option<Curve>,
    usc: Option<Curve>,
    total: f64,
    cumul: f64,
    d: f64,
    e: f64,
    vt: f64,
    f: f64,
    myf: f64,
    cvtmin: f64,
    cvtoff: f64,
    vtadj: f64,
    deadline: Runtime,
    eligible: Runtime,
    curve_of_vt: Runtime,
    ulimit: Runtime,
    vtperiod: u32,
    parentperiod: u32,
    nactive: u32,
    /// Whether it is in the tree of eligible times, and in its parent's of virtual times.
    in_el: bool,
    in_vt: bool,
    /// The lengths of its packets.
    queue: std::collections::VecDeque<u32>,
}

/// What is next.
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    /// Any of these leaves, and whether by its deadline.
    Any(Vec<(u32, bool)>),
    /// Nothing before this time; infinite for never.
    Later(f64),
}

/// The kernel's scheduler. The class 0 is the root.
pub struct Kernel {
    classes: BTreeMap<u32, Class>,
}

impl Kernel {
    pub fn new(classes: &[(u32, narrows_qdisc::hfsc::Class)]) -> Self {
        let mut all = BTreeMap::from([(0, Class::default())]);
        for (id, class) in classes {
            let (rsc, fsc, usc) = (class.real_time, class.link_share, class.upper_limit);
            let runtime = |curve: Option<Curve>| {
                curve.map(|curve| Runtime::new(curve, 0.0, 0.0)).unwrap_or_default()
            };
            let mut eligible = runtime(rsc);
            if eligible.m1 <= eligible.m2 {
                (eligible.dx, eligible.dy) = (0.0, 0.0);
            }
            let class = Class {
                parent: Some(class.parent.unwrap_or(0)),
                rsc,
                fsc,
                usc,
                deadline: runtime(rsc),
                eligible,
                curve_of_vt: runtime(fsc),
                ulimit: runtime(usc),
                ..Class::default()
            };
            all.insert(*id, class);
        }
        Self { classes: all }
    }

    fn at(&mut self, id: u32) -> &mut Class {
        self.classes.get_mut(&id).unwrap()
    }

    fn parent(&self, id: u32) -> u32 {
        self.classes[&id].parent.unwrap()
    }

    fn active_children(&self, id: u32) -> impl Iterator<Item = (u32, &Class)> {
        let children = self.classes.iter().filter(move |(_, class)| class.parent == Some(id));
        children.filter(|(_, class)| class.in_vt).map(|(id, class)| (*id, class))
    }

    /// The path from `id` to the root, that left out.
    fn path(&self, id: u32) -> Vec<u32> {
        let above = |id: &u32| self.classes[id].parent.filter(|parent| *parent != 0);
        std::iter::successors(Some(id), above).collect()
    }

    /// `update_cfmin`, when it is needed.
    fn cfmin(&self, id: u32) -> f64 {
        let all = self.active_children(id).map(|(_, class)| class.f);
        let first = all.fold(INFINITE, f64::min);
        if first == INFINITE { 0.0 } else { first }
    }

    /// A packet comes for the leaf `id`.
    pub fn enqueue(&mut self, id: u32, len: u32, now: f64) {
        let class = self.at(id);
        class.queue.push_back(len);
        if class.queue.len() > 1 {
            return;
        }
        if let Some(curve) = class.rsc {
            // init_ed
            let cumul = class.cumul;
            class.deadline.min(curve, now, cumul);
            class.eligible = class.deadline;
            if class.eligible.m1 <= class.eligible.m2 {
                (class.eligible.dx, class.eligible.dy) = (0.0, 0.0);
            }
            class.in_el = true;
            self.update_ed(id);
        }
        if self.classes[&id].fsc.is_some() {
            self.init_vf(id, now);
        }
    }

    fn update_ed(&mut self, id: u32) {
        let class = self.at(id);
        let len = f64::from(*class.queue.front().unwrap());
        class.e = class.eligible.x_at(class.cumul);
        class.d = class.deadline.x_at(class.cumul + len);
    }

    fn init_vf(&mut self, id: u32, now: f64) {
        let mut go_active = true;
        for id in self.path(id) {
            let class = self.at(id);
            if go_active {
                class.nactive += 1;
                go_active = class.nactive == 1;
            }
            let parent = self.parent(id);
            if go_active {
                let last = self.active_children(parent).map(|(_, class)| class.vt);
                let last = last
                    .fold(None, |last: Option<f64>, vt| Some(last.map_or(vt, |last| last.max(vt))));
                let above = &self.classes[&parent];
                let (cvtmin, cvtoff) = (above.cvtmin, above.cvtoff);
                let (vtperiod, nactive) = (above.vtperiod, above.nactive);
                let class = self.at(id);
                if let Some(mut vt) = last {
                    if cvtmin != 0.0 {
                        vt = f64::midpoint(cvtmin, vt);
                    }
                    if vtperiod != class.parentperiod || vt > class.vt {
                        class.vt = vt;
                    }
                } else {
                    class.vt = cvtoff;
                    self.at(parent).cvtmin = 0.0;
                }
                let class = self.at(id);
                let (vt, total, curve) = (class.vt, class.total, class.fsc.unwrap());
                class.curve_of_vt.min(curve, vt, total);
                class.vtadj = 0.0;
                class.vtperiod += 1;
                class.parentperiod = vtperiod + u32::from(nactive == 0);
                class.f = 0.0;
                class.in_vt = true;
                if let Some(curve) = class.usc {
                    class.ulimit.min(curve, now, total);
                    class.myf = class.ulimit.x_at(total);
                }
            }
            let cfmin = self.cfmin(id);
            let class = self.at(id);
            class.f = class.myf.max(cfmin);
        }
    }

    fn update_vf(&mut self, id: u32, len: u32) {
        let class = &self.classes[&id];
        let mut go_passive = class.queue.is_empty() && class.fsc.is_some();
        for id in self.path(id) {
            let parent = self.parent(id);
            let (cvtmin, cfmin) = (self.classes[&parent].cvtmin, self.cfmin(id));
            let class = self.at(id);
            class.total += f64::from(len);
            if class.fsc.is_none() || class.nactive == 0 {
                continue;
            }
            if go_passive {
                class.nactive -= 1;
                go_passive = class.nactive == 0;
            }
            class.vt = class.curve_of_vt.x_at(class.total) + class.vtadj;
            if class.vt < cvtmin {
                class.vtadj += cvtmin - class.vt;
                class.vt = cvtmin;
            }
            if go_passive {
                class.in_vt = false;
                let vt = class.vt;
                let above = self.at(parent);
                above.cvtoff = above.cvtoff.max(vt);
                continue;
            }
            if class.usc.is_some() {
                class.myf = class.ulimit.x_at(class.total);
            }
            class.f = class.myf.max(cfmin);
        }
    }

    /// What is next at `now`.
    pub fn next(&self, now: f64) -> Next {
        let eligible = |margin: f64| {
            let all = self.classes.iter().filter(|(_, class)| class.in_el);
            all.filter(move |(_, class)| class.e <= now + margin)
        };
        let first = eligible(0.0).map(|(_, class)| class.d).fold(INFINITE, f64::min);
        let mut any: Vec<(u32, bool)> = eligible(NEAR)
            .filter(|(_, class)| class.d <= first + NEAR)
            .map(|(id, _)| (*id, true))
            .collect();
        // Whether some that are eligible may be so only for this model.
        if eligible(-NEAR).next().is_none() {
            self.fit(0, now, &mut any);
        }
        if !any.is_empty() {
            return Next::Any(any);
        }
        let due = self.classes.values().filter(|class| class.in_el).map(|class| class.e);
        let fit = self.active_children(0).map(|(_, class)| class.f);
        Next::Later(due.chain(fit).fold(INFINITE, f64::min))
    }

    /// Adds the leaves below `id` that link sharing may serve.
    fn fit(&self, id: u32, now: f64, any: &mut Vec<(u32, bool)>) {
        let fit = |margin: f64| {
            self.active_children(id).filter(move |(_, class)| class.f <= now + margin)
        };
        let first = fit(-NEAR).map(|(_, class)| class.vt).fold(INFINITE, f64::min);
        for (id, _) in fit(NEAR).filter(|(_, class)| class.vt <= first + NEAR) {
            if self.classes.values().any(|class| class.parent == Some(id)) {
                self.fit(id, now, any);
            } else {
                any.push((id, false));
            }
        }
    }

    /// Serves the first packet of the leaf `id`, by its deadline or not.
    pub fn dequeue(&mut self, id: u32, in_real_time: bool) {
        if !in_real_time {
            for id in self.path(id) {
                let (vt, parent) = (self.classes[&id].vt, self.parent(id));
                let above = self.at(parent);
                above.cvtmin = above.cvtmin.max(vt);
            }
        }
        let class = self.at(id);
        let len = class.queue.pop_front().unwrap();
        self.update_vf(id, len);
        let class = self.at(id);
        if in_real_time {
            class.cumul += f64::from(len);
        }
        if class.rsc.is_some() {
            if class.queue.is_empty() {
                class.in_el = false;
            } else {
                self.update_ed(id);
            }
        }
    }

    /// What the class has had, and of that by its deadlines; and in how many periods.
    pub fn service(&self, id: u32) -> (u64, u64, u32) {
        let class = &self.classes[&id];
        (class.total as u64, class.cumul as u64, class.vtperiod)
    }
}
