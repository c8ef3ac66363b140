//! A datagram to a service, by the way of clients.

use super::ClientPath;
use super::answers::Answer;
use crate::probe::NoAnswer;
use narrows_balance::Protocol;

/// Sends `data` to `port` of the service, and waits for any datagram from there.
pub(crate) async fn exchange(path: &ClientPath, port: u16, data: &[u8]) -> Result<(), NoAnswer> {
    let mut exchange = path.talk(Protocol::Udp)?;
    let builder = path.header()?.udp(exchange.local.port(), port);
    let mut packet = Vec::with_capacity(builder.size(data.len()));
    builder
        .write_to_vec(&mut packet, data)
        .map_err(|error| NoAnswer::Here(format!("a datagram: {error}")))?;
    exchange.send(&packet)?;
    match exchange.inbox.next().await {
        Some(Answer::Packet(_)) => Ok(()),
        Some(Answer::Unreachable(why)) => Err(NoAnswer::There(why)),
        None => Err(NoAnswer::Here("no more answers are read".into())),
    }
}
