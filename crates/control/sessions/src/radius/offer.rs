//! What a packet says of a plan.
//!
//! *Idea.* Rates come in parts: a plan's name, both directions at once, or one direction in each of
//! two attributes. An [`Offer`] holds the parts that a packet has. Applied to the plan that a
//! subscriber has, it changes those and leaves the others.

use super::config::{Config, Limits, RateRule, Reading};
use super::packet::{Packet, Type};
use super::rates::{self, DOWN, UP};
use narrows_directory::Plan;
use narrows_units::Rate;
use serde::{Deserialize, Serialize};

/// The parts of a plan that a packet names; rates in bit/s, 0 for no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offer {
    /// A plan of the configuration. It says everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The ceilings, downstream and upstream.
    #[serde(skip_serializing_if = "is_nothing")]
    pub ceiling: [Option<u64>; 2],
    /// The assured rates.
    #[serde(skip_serializing_if = "is_nothing")]
    pub assured: [Option<u64>; 2],
}

fn is_nothing(parts: &[Option<u64>; 2]) -> bool {
    *parts == [None; 2]
}

/// A value that cannot be used, and why.
pub type Fault = (Type, String);

impl Offer {
    /// What `packet` says, under the rules of `config`: the first rule wins for each part.
    ///
    /// # Errors
    /// With the first value that cannot be used. What is right in the packet is in the offer.
    pub fn read(config: &Config, packet: &Packet<'_>) -> (Self, Option<Fault>) {
        let mut offer = Self::default();
        let mut fault = None;
        for rule in &config.rules {
            // A whole plan, or both directions, leave nothing to say.
            if offer.plan.is_some() {
                break;
            }
            let values = packet.attributes().filter(|(kind, _)| *kind == rule.attribute);
            for (_, value) in values {
                let Some(value) = value.strip_prefix(rule.prefix.as_bytes()) else { continue };
                if let Err(why) = offer.take(config, rule, value) {
                    fault.get_or_insert((rule.attribute, why));
                }
            }
        }
        (offer, fault)
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The plan that a subscriber has from now on who had `former`; `None` if nothing is said of
    /// it.
    pub fn applied(&self, config: &Config, former: Option<&Plan>) -> Option<Plan> {
        // A plan may be gone from the configuration since a session was saved.
        if let Some(plan) = self.plan.as_ref().and_then(|name| config.plans.get(name)) {
            return Some(plan.clone());
        }
        if is_nothing(&self.ceiling) && is_nothing(&self.assured) {
            return former.cloned();
        }
        let limits = &config.limits;
        let mut plan = former.cloned().unwrap_or_else(|| Plan {
            ceiling: [limits.rate_max; 2],
            queueing: [config.queueing; 2],
            ..Plan::default()
        });
        plan.name = None;
        for direction in [DOWN, UP] {
            if let Some(bps) = self.ceiling[direction] {
                let ceiling = if bps == 0 { limits.rate_max } else { Rate::from_bits_per_sec(bps) };
                plan.ceiling[direction] = ceiling;
            }
            if let Some(bps) = self.assured[direction] {
                plan.assured[direction] = Rate::from_bits_per_sec(bps);
            }
            plan.assured[direction] = plan.assured[direction].min(plan.ceiling[direction]);
        }
        Some(plan)
    }

    fn take(&mut self, config: &Config, rule: &RateRule, value: &[u8]) -> Result<(), String> {
        let limits = &config.limits;
        match rule.reading {
            Reading::Plan => {
                let name = text(value)?;
                if !config.plans.contains_key(name) {
                    let name = narrows_escape::line(name);
                    return Err(format!("there is no [plans.{name}] in the configuration"));
                }
                // Rates that a rule before this one found are meant.
                if *self == Self::default() {
                    self.plan = Some(name.to_owned());
                }
            }
            Reading::Mikrotik => {
                let speeds = rates::mikrotik(text(value)?)?;
                let bps = |rate: Option<Rate>| rate.unwrap_or_default().bits_per_sec();
                let ceiling = speeds.ceiling.map(bps);
                let assured = speeds.assured.map(Rate::bits_per_sec);
                for bps in ceiling.into_iter().chain(assured) {
                    check(bps, limits)?;
                }
                for direction in [DOWN, UP] {
                    self.ceiling[direction].get_or_insert(ceiling[direction]);
                    self.assured[direction].get_or_insert(assured[direction]);
                }
            }
            Reading::DownBps => part(&mut self.ceiling[DOWN], value, 1, limits)?,
            Reading::UpBps => part(&mut self.ceiling[UP], value, 1, limits)?,
            Reading::DownKbps => part(&mut self.ceiling[DOWN], value, 1_000, limits)?,
            Reading::UpKbps => part(&mut self.ceiling[UP], value, 1_000, limits)?,
            Reading::DownMinBps => part(&mut self.assured[DOWN], value, 1, limits)?,
            Reading::UpMinBps => part(&mut self.assured[UP], value, 1, limits)?,
        }
        Ok(())
    }
}

fn part(slot: &mut Option<u64>, value: &[u8], unit: u64, limits: &Limits) -> Result<(), String> {
    let bytes: [u8; 4] =
        value.try_into().map_err(|_| "it is no integer of four bytes".to_owned())?;
    let bps = u64::from(u32::from_be_bytes(bytes)) * unit;
    check(bps, limits)?;
    slot.get_or_insert(bps);
    Ok(())
}

/// Whether a rate is one that a class may have; 0 says that there is none.
fn check(bps: u64, limits: &Limits) -> Result<(), String> {
    let rate = Rate::from_bits_per_sec(bps);
    if !rate.is_zero() && (rate < limits.rate_min || rate > limits.rate_max) {
        let Limits { rate_min, rate_max, .. } = limits;
        return Err(format!("{rate} is not between {rate_min} and {rate_max}"));
    }
    Ok(())
}

fn text(value: &[u8]) -> Result<&str, String> {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    str::from_utf8(value).map(str::trim).map_err(|_| "it is no text".to_owned())
}
