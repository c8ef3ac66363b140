//! The data plane: the instance on this box, over its control socket.
//!
//! *One order at a time.* A late order must not undo a later one, so an order is waited for until
//! it cannot be carried out any more: after its deadline the instance ignores it.

use crate::clock;
use narrows_control::{Answer, Client, ControlError, Request};
use narrows_snapshot::{FleetFacts, FleetOrder};
use std::future::Future;
use std::time::Duration;

/// How long after its deadline an order is still waited for: the instance may just have begun.
const BEHIND_DEADLINE: Duration = Duration::from_millis(200);
/// It is waited for at least so long: an order that only asks has no deadline.
const ASK_TIME: Duration = Duration::from_secs(1);

/// Why a data plane did not answer.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// It is not there, or cannot be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// There are several, and nobody said which.
    #[error(
        "several instances run here, with the ports {0}: name those of one as `ports` in the \
         configuration"
    )]
    Several(String),
    /// It has not all the ports.
    #[error("no instance has all the ports {0}: one with the first of them has {1}")]
    OtherPorts(String, String),
    /// It says something else.
    #[error("the instance does not know shared limits: {0}; it is older than this agent")]
    Refused(String),
}

/// What an agent orders from.
pub trait Plane {
    /// Has it carry out `order`, and waits for its answer.
    fn ask(&mut self, order: FleetOrder) -> impl Future<Output = Result<FleetFacts, PlaneError>>;
}

/// The instance with certain ports, or the only one of this network namespace.
#[derive(Debug)]
pub struct Instance {
    ports: Vec<String>,
    client: Option<Client>,
}

impl Instance {
    /// The one with `ports`; with none of them, the only one.
    pub fn with(ports: Vec<String>) -> Self {
        Self { ports, client: None }
    }
}

impl Plane for Instance {
    async fn ask(&mut self, order: FleetOrder) -> Result<FleetFacts, PlaneError> {
        let known = self.client.take();
        let ports = self.ports.clone();
        // The client blocks, and messages are received meanwhile.
        let asked = tokio::task::spawn_blocking(move || {
            let client = match known {
                Some(client) => client,
                None => find(&ports)?,
            };
            let time = ASK_TIME.max(clock::until(order.deadline_ns) + BEHIND_DEADLINE);
            match client.ask_within(&Request::Fleet(order), "", time)? {
                Answer::Fleet(facts) => Ok((client, *facts)),
                Answer::Refused(why) => Err(PlaneError::Refused(why)),
                other => Err(PlaneError::Refused(format!("{other:?}"))),
            }
        });
        let (client, facts) = match asked.await {
            Ok(answer) => answer?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.client = Some(client);
        Ok(facts)
    }
}

fn find(ports: &[String]) -> Result<Client, PlaneError> {
    let mut found = Client::find(ports.first().map(String::as_str))?;
    if found.len() > 1 {
        let all: Vec<String> = found.iter().map(|client| client.ports.join(",")).collect();
        return Err(PlaneError::Several(all.join(" and ")));
    }
    let Some(client) = found.pop() else {
        return Err(ControlError::NoInstance(String::new()).into());
    };
    if ports.iter().all(|port| client.ports.contains(port)) {
        Ok(client)
    } else {
        Err(PlaneError::OtherPorts(ports.join(","), client.ports.join(",")))
    }
}
