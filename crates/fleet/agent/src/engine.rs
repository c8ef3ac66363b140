//! What carries messages between agents.
//!
//! *Idea.* An engine passes bytes to all members or to one, and says who sent what it delivers.
//! It may lose, delay, double and reorder messages, and be away for any time: what agents say to
//! each other holds nevertheless. So an engine keeps nothing, and [`Engine::publish`] never waits.
//!
//! *Principle.* The sender comes from the engine's own permissions, never from the message.
//!
//! *Non-goals.* Delivery guarantees, order, storage, agreement.

pub mod nats;

use std::future::Future;

/// What an engine has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// A message.
    Message {
        /// The name of the box that sent it, as the engine attests it.
        from: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Messages pass from now on.
    Connected {
        /// Through which server.
        through: String,
    },
    /// None pass until it is connected again. It keeps trying.
    Lost,
    /// Something is wrong, for people to read.
    Trouble(String),
}

/// Whether a message was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// It is on its way, which is no promise.
    Over,
    /// It was dropped, as messages may be: no connection, or too many that wait.
    Dropped,
}

/// Passes messages between the members of a fleet.
pub trait Engine {
    /// The next report. To drop the future loses none.
    fn next(&mut self) -> impl Future<Output = Report>;

    /// Sends `bytes` to all others, or to the box `to`. Never waits.
    fn publish(&mut self, to: Option<&str>, bytes: Vec<u8>) -> Handed;
}
