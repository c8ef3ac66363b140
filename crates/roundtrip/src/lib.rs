//! How long round trips take on the far side of each port, and what is lost on the way: learned
//! from packets that pass, none of which is made or changed for it.
//!
//! *Idea.* A packet that leaves through a port and must be answered is remembered with what its
//! answer will say. The time until that comes in at the same port is a round trip beyond the port:
//! what packets wait in Narrows is not in it. Answers may come in on another queue than the one
//! that sends, so what is awaited stands on a [board](Awaited) that all queues of a port share. All
//! else is an [`Observer`]'s own, one for each queue and port.
//!
//! *What is awaited:*
//! * *TCP:* a segment with new data, until its last byte is acknowledged. One without data is not
//!   answered, so it awaits nothing: what comes later answers something else, after any time. Where
//!   data is sent again meanwhile, nobody knows which of both is acknowledged (Karn). With time
//!   stamps (RFC 7323) the echo tells: one that is later than the segment's stamp answers something
//!   else. Without, nothing is awaited any more.
//! * *QUIC:* a turn of the client's spin bit, until the server's has turned too; and of the
//!   server's, until the client's has (RFC 9000, 17.4). A bit that turns with every fourth packet
//!   or more often is no spin bit.
//!
//! *Loss.* A segment that leaves for the second time was lost beyond the port. A gap in what leaves
//! that is filled later was lost before: on the other side, or here.
//!
//! *How exact.* Times are those of the step in which a worker handed the packet to the device, or
//! took it from there. Receivers may keep an acknowledgement back, by 40 ms or more, where little
//! is sent: the least of some time is that of the path. One packet of a connection is awaited at a
//! time, and at most ten in a second.
//!
//! *Sampling.* A queue watches up to [`FLOWS`](flows::FLOWS) connections at a time for each port,
//! and each for some seconds where there are more. A queue that sends very many packets watches
//! them in one part of the time only ([`Turns`](turns::Turns)).
//!
//! *Non-goals.* Connections in tunnels; loss of QUIC packets, whose numbers are encrypted; what TCP
//! sends again without need, which counts as lost.

mod awaited;
mod flows;
mod known;
mod losses;
mod observer;
mod sync;
mod trips;
mod turns;
mod windows;

pub use awaited::Awaited;
pub use known::{Class, Host};
pub use losses::Losses;
pub use observer::{NO_CLASS, Observer};
pub use trips::Trips;
pub use windows::{Known, merge};
