//! Round-trip times and losses beyond each port, measured passively: packets are neither added nor
//! changed.
//!
//! *Idea.* If a packet that leaves through a port must be answered, its departure time is stored
//! with the contents of the expected answer. The time until that answer arrives at the same port is
//! a round trip beyond the port; queueing in Narrows is not included. The answer may arrive on
//! another queue than the one that sent, so all queues of a port share a [board](Awaited) of
//! expected answers. Everything else is private to an [`Observer`], one for each queue and port.
//!
//! *Awaited answers:*
//! * *TCP:* a segment with new data, until its last byte is acknowledged. A segment without data is
//!   not acknowledged, so it awaits nothing. If data is sent again meanwhile, the acknowledgement
//!   is ambiguous (Karn). With time stamps (RFC 7323) the echo decides: if it is later than the
//!   segment's stamp, it answers the retransmission. Without time stamps the wait is given up.
//! * *QUIC:* a turn of the client's spin bit, until the server's has turned too; and of the
//!   server's, until the client's has (RFC 9000, 17.4). A bit that turns with every fourth packet
//!   or more often is no spin bit.
//! * *TCP without data*, only while somebody follows the line ([`Awaited::watch`]): an
//!   acknowledgement with a time stamp, until data comes back with its echo. On the way of a
//!   download nothing else makes a round trip. It contains the pauses of who sends, so it is in no
//!   statistics.
//!
//! *Loss.* A segment that leaves for the second time was lost beyond the port. A gap in the
//! segments that leave, filled later, is a loss before the port: on the other side, or here.
//!
//! *How exact.* Times are those of the step in which a worker handed the packet to the device, or
//! took it from there. Receivers may delay an acknowledgement by 40 ms or more at low rates, so the
//! minimum over some time is the path's round trip. At most one packet of a connection is timed at
//! a time, and ten per second; a hundred while somebody follows the line.
//!
//! *Sampling.* A queue watches up to [`FLOWS`](flows::FLOWS) connections at a time for each port,
//! and each for some seconds if there are more. A queue that sends very many packets watches them
//! only part of the time ([`Turns`](turns::Turns)).
//!
//! *Non-goals.* Connections in tunnels; loss of QUIC packets, whose numbers are encrypted; spurious
//! TCP retransmissions, which count as losses.

mod awaited;
mod flows;
mod known;
mod line;
mod losses;
mod observer;
mod sync;
mod trips;
mod turns;
mod windows;

pub use awaited::Awaited;
pub use known::{Class, Host};
pub use line::{Seen, Trip, take_trips};
pub use losses::Losses;
pub use observer::{NO_CLASS, Observer};
pub use trips::Trips;
pub use windows::{Known, merge};
