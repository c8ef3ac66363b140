//! AF_XDP as a plane: plans become qdiscs of workers, and workers' reports become counts.

use super::Session;
use crate::clock;
use crate::counters::Counts;
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::{PortFront, Terms};
use crate::heartbeat::SilentWorker;
use crate::look_ups::LooksUp;
use crate::plane::{Closed, Mode, Plane, Reconciled, Report, Still};
use crate::upgrade::state::PlaneManifest;
use crate::ways::Ways;
use crate::worker_report::{RootCount, WorkerReport};
use crate::workers::{Ended, Standstill};
use narrows_bpf::{Asks, Hook, Pulse, SetTables, SteerError};
use narrows_classify::{ActionId, ActionStats};
use narrows_forwarding::{DeviceId, PerDevice, PortId};
use narrows_link::Device;
use narrows_policy::{NodeStats, Plan};
use narrows_qdisc::Detail;
use narrows_qdisc::htb::ClassCount;
use narrows_roundtrip::Seen;
use narrows_shaper::Installation;
use narrows_snapshot::Worker;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the queues may keep sending after the programs were detached.
const DRAIN_TIME: Duration = Duration::from_millis(250);

impl Plane for Session {
    fn devices(&self) -> &PerDevice<DeviceFacts> {
        &self.prepared.devices
    }

    fn queues(&self) -> usize {
        self.workers.count()
    }

    fn mode(&self) -> Mode {
        Mode {
            hooks: self.xdp_modes.iter().copied().map(Hook::Xdp).collect(),
            frames: Some((self.prepared.copy_mode, self.prepared.sizing.buffer.size)),
        }
    }

    fn device(&self, device: DeviceId) -> Device {
        let now = Device::read(self.prepared.devices[device].ifindex).unwrap_or_default();
        Device { losses: now.losses.since(&self.losses_before[device]), ..now }
    }

    fn plan(&self, port: PortId) -> &Plan {
        self.installed[port].plan()
    }

    fn install(&mut self, port: PortId, plan: Plan) -> Result<(), InstanceError> {
        let base = Arc::clone(&self.installed[port]);
        self.install_reconciled(port, Reconciled::new(plan, base)).map(drop)
    }

    fn installed(&self, port: PortId) -> Option<Arc<Installation>> {
        Some(Arc::clone(&self.installed[port]))
    }

    fn install_reconciled(
        &mut self,
        port: PortId,
        reconciled: Reconciled,
    ) -> Result<Option<Arc<Installation>>, InstanceError> {
        let installed = &mut self.installed[port];
        let Reconciled { base, next, specs } = reconciled;
        let (next, specs) = match Arc::ptr_eq(&base, installed) {
            true => (next, specs),
            // Something else has been installed since.
            false => {
                drop(specs);
                Installation::reconcile(next.plan().clone(), Some(installed))
            }
        };
        next.commit();
        self.prepared.slow_paths.follow(port, next.plan());
        let replaced = std::mem::replace(installed, Arc::new(next));
        self.workers.update(port, specs);
        Ok(Some(replaced))
    }

    fn put_in_front(
        &mut self,
        port: PortId,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), InstanceError> {
        Ok(self.prepared.put_in_front(port, terms, tables)?)
    }

    fn stats(&self, port: PortId) -> Vec<NodeStats> {
        let of_port = |mut report: WorkerReport| {
            report.ports.get_mut(port).map(|port| std::mem::take(&mut port.qdiscs))
        };
        let reports = self.workers.reports().into_iter();
        let per_queue: Vec<_> = reports.map(|report| of_port(report).unwrap_or_default()).collect();
        self.installed[port].gather(&per_queue)
    }

    fn roots(&self, ports: &[PortId]) -> Vec<RootCount> {
        self.workers.roots(ports)
    }

    fn sees_trips(&self, port: PortId) -> bool {
        self.boards.of(port).is_some()
    }

    fn watch_trips(&mut self, port: PortId, is_watched: bool) -> Result<(), InstanceError> {
        if let Some(board) = self.boards.of(port) {
            board.watch(is_watched);
        }
        Ok(())
    }

    fn take_trips(&self, port: PortId) -> Seen {
        self.boards.of(port).map(|board| board.take()).unwrap_or_default()
    }

    fn class_counts(&self, port: PortId) -> Option<Vec<Vec<ClassCount>>> {
        Some(self.workers.class_counts(port))
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        let behind = self.installed.iter().flat_map(|installed| installed.action_stats());
        behind.chain(self.prepared.fronts.iter().flat_map(PortFront::action_stats)).collect()
    }

    fn report(&self) -> Report {
        let reports = self.workers.reports();
        let largest_cake = |port: PortId| {
            let of_port = reports.iter().filter_map(|report| report.ports.get(port));
            let qdiscs = of_port.flat_map(|report| &report.qdiscs);
            let cakes = qdiscs.filter_map(|stats| stats.detail.as_ref().and_then(Detail::cake));
            cakes.map(|cake| cake.own_memory.0).max()
        };
        Report {
            counts: self.counts(&reports),
            workers: self.view(&reports),
            largest_cake: self.installed.keys().map(largest_cake).collect(),
        }
    }

    fn ways(&self) -> Option<&Ways> {
        self.prepared.ways.as_ref()
    }

    fn follow(&mut self) -> Result<(), InstanceError> {
        Ok(self.prepared.ways.as_mut().map_or(Ok(()), Ways::follow)?)
    }

    fn ask(&mut self, asks: Asks) -> Result<(), InstanceError> {
        Ok(self.prepared.ways.as_mut().map_or(Ok(()), |ways| ways.ask(asks))?)
    }

    fn slow_path_refusal(&self) -> Option<&str> {
        self.prepared.slow_paths.programs().refusal()
    }

    fn pulses(&self) -> Vec<Pulse> {
        self.workers.pulses().collect()
    }

    fn silent(&self) -> Vec<SilentWorker> {
        self.workers.silent()
    }

    fn can_look_up(&self) -> bool {
        self.prepared.steers.iter().all(|steer| steer.can_look_up().is_ok())
    }

    fn offer(&self) -> Result<(PlaneManifest, Vec<OwnedFd>), &'static str> {
        let (manifest, descriptors) = self.manifest().ok_or("a worker does not answer")?;
        Ok((PlaneManifest::Xsk(manifest), descriptors))
    }

    fn stand_still(&self, time: Duration) -> Option<(Still, Standstill)> {
        let (paused, standstill) = self.workers.pause(time)?;
        let (reports, queued): (Vec<_>, Vec<_>) =
            paused.into_iter().map(|paused| (paused.report, paused.queued)).unzip();
        let mut counts = self.counts(&reports);
        // The other process reads it where it is counted.
        counts.ports.iter_mut().for_each(|port| port.slow_path = None);
        let now = clock::now();
        let used = self.installed.iter().map(|installed| installed.spent_until(now)).collect();
        Some((Still { counts, queued, used, ..Still::default() }, standstill))
    }

    fn close(mut self: Box<Self>, drain: bool) -> Closed {
        self.prepared.slow_paths.programs_mut().detach();
        for steer in &mut self.prepared.steers {
            steer.detach();
        }
        let deadline = Instant::now() + DRAIN_TIME;
        while drain && Instant::now() < deadline && self.has_queued() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let Ended { reports, left_behind } = self.workers.stop();
        let mut counts = self.counts(&reports);
        counts.clear_backlogs();
        Closed { counts, left_behind, not_restored: Vec::new() }
    }
}

impl Session {
    /// The sum of `reports`, with the counters of programs and devices.
    fn counts(&self, reports: &[WorkerReport]) -> Counts {
        let forwarding = &self.prepared.forwarding;
        let mut counts = Counts::none(self.installed.len());
        for (id, port) in counts.ports.iter_mut_enumerated() {
            port.slow_path = self.prepared.slow_paths.counters(id);
            if forwarding.is_first(id) {
                let device = forwarding.device_of(id);
                port.verdicts = self.prepared.steers[device].verdicts().unwrap_or_default();
                port.losses = self.device(device).losses;
                port.routes = self.prepared.steers[device].outcomes().unwrap_or_default();
            }
        }
        for (queue, report) in reports.iter().enumerate() {
            counts.add_worker(queue, report);
        }
        for (port, front) in self.prepared.fronts.iter_enumerated() {
            // On which queue that was is not known: it is told of the first.
            for dropped in front.dropped() {
                counts.add_dropped_in_front(port, forwarding.across(port), 0, dropped);
            }
        }
        counts
    }

    /// The workers of `reports`, for people.
    fn view(&self, reports: &[WorkerReport]) -> Vec<Worker> {
        let cpus: Vec<usize> = self.workers.cpus().collect();
        let silent = self.silent();
        (0u32..)
            .zip(cpus.iter().copied())
            .zip(reports)
            .map(|((queue, cpu), report)| {
                let silence = silent.iter().find(|worker| worker.queue == queue);
                let all = (report.busy + report.idle).as_secs_f64();
                Worker {
                    queue,
                    cpu: cpus.get(report.thread as usize).copied().unwrap_or(cpu),
                    thread: report.thread,
                    load: if all > 0.0 { report.busy.as_secs_f64() / all } else { 0.0 },
                    idle_s: report.idle.as_secs_f64(),
                    cpu_s: report.cpu_time.as_secs_f64(),
                    frames: report.all_frames,
                    free_frames: report.frames.free,
                    receiving_frames: report.frames.receiving,
                    waiting_frames: report.frames.waiting,
                    sending_frames: report.frames.sending,
                    stray_frames: report.stray_frames,
                    silent_s: silence.map(|worker| worker.silence.as_secs_f64()),
                }
            })
            .collect()
    }

    /// Whether any queued packets can leave: those of a silent worker cannot.
    fn has_queued(&self) -> bool {
        let reports = self.workers.reports();
        let silent = self.silent();
        (0u32..).zip(reports).any(|(queue, report)| {
            let is_silent = silent.iter().any(|worker| worker.queue == queue);
            !is_silent && report.ports.iter().any(|port| !port.backlog.is_empty())
        })
    }
}

/// Frames that leave at `egress` are looked up where they arrive: all of that device, if a port on
/// it wants it.
impl LooksUp for Session {
    fn look_up(&mut self, egress: PortId, wanted: bool) -> Result<(), SteerError> {
        let forwarding = &self.prepared.forwarding;
        match wanted {
            true => self.looks_up.insert(egress),
            false => self.looks_up.remove(egress),
        }
        // A router and a switch have no such look-up.
        let arrives = forwarding.across(egress).unwrap_or(egress);
        let device = forwarding.device_of(arrives);
        let mut served = forwarding.ports_on(device).filter_map(|port| forwarding.across(port));
        let is_wanted = served.any(|port| self.looks_up.has(port));
        let done = self.prepared.steers[device].look_up(is_wanted);
        if done.is_err() {
            self.looks_up.remove(egress);
        }
        done
    }
}
