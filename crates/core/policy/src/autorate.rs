//! Limits whose rate follows that of a line: their words, and the policy that is enforced with the
//! rates in force.
//!
//! *Idea.* The limit at the root of a port stands in front of a line whose rate changes. The
//! operator says between which rates it may be, and which port the line is beyond: this one for
//! what is sent into the line, the other one for what comes from it. What is in force is decided at
//! run time, so it is in the enforced policy only, as the shares of a fleet are.
//!
//! *Non-goals.* How the rate is found: `narrows_autorate`.

use crate::{Kind, Node, Parent, Policy, PolicyError, PortPolicy};
use narrows_units::Rate;
use std::net::IpAddr;

/// The most reflectors of a line.
pub const REFLECTORS_MAX: usize = 8;

/// What makes the rate of a limit follow a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Autorate {
    /// The least rate.
    pub least: Rate,
    /// The highest.
    pub most: Rate,
    /// The port that the line is beyond; this one if none is named.
    pub line: Option<String>,
    /// Hosts beyond the line that are asked for echoes where no packets that pass make round trips;
    /// at most [`REFLECTORS_MAX`], each once.
    pub reflectors: Vec<IpAddr>,
}

impl Autorate {
    /// Refuses bounds between which `rate` is not. `of` is the word that sets it, `parent` where
    /// the qdisc is.
    pub(crate) fn check(&self, of: &str, rate: Rate, parent: Parent) -> Result<(), PolicyError> {
        let refuse = |why: String| Err(PolicyError::Autorate(why));
        let Self { least, most, .. } = self;
        if parent != Parent::Root {
            return refuse(
                "the limit of a line is that of a whole port: give it to the root.".into(),
            );
        }
        if least.is_zero() {
            return refuse("a least rate of 0 lets nothing pass: give at least 8bit.".into());
        }
        if least > most {
            return refuse(format!(
                "{least} is above {most}: give the least rate first, then the highest."
            ));
        }
        if rate < *least || rate > *most {
            return refuse(format!(
                "the {of} to begin with, {rate}, is not between {least} and {most}: give one that \
                 is."
            ));
        }
        Ok(())
    }
}

impl Node {
    /// What makes the rate of this qdisc follow a line, with the rate to begin with.
    pub(crate) fn autorate(&self) -> Option<(&Autorate, Rate)> {
        match &self.kind {
            Kind::Tbf(tbf) => Some((tbf.autorate.as_deref()?, tbf.rate)),
            Kind::Cake(cake) => {
                let rate = cake.params.config.rate.unwrap_or_default();
                Some((cake.params.autorate.as_deref()?, rate))
            }
            _ => None,
        }
    }
}

impl PortPolicy {
    /// What makes the rate of this port follow a line, with the rate to begin with.
    pub fn autorate(&self) -> Option<(&Autorate, Rate)> {
        self.root()?.autorate()
    }
}

impl Policy {
    /// The ports whose rate follows a line.
    pub fn autorates(&self) -> impl Iterator<Item = (&str, &Autorate, Rate)> {
        self.ports().filter_map(|(dev, port)| {
            let (autorate, rate) = port.autorate()?;
            Some((dev, autorate, rate))
        })
    }

    /// This policy, to be enforced, with the rates that are in force where they follow a line.
    #[must_use]
    pub fn following(mut self, in_force: impl Fn(&str) -> Option<Rate>) -> Self {
        for (dev, port) in &mut self.ports {
            let Some((Autorate { least, most, .. }, now)) = port.autorate() else { continue };
            let Some(rate) = in_force(dev) else { continue };
            let rate = rate.max(*least).min(*most);
            if rate != now
                && let Some(handle) = port.root().map(|root| root.handle)
            {
                port.change_node(handle, |node| node.with_rate(rate));
            }
        }
        self
    }
}
