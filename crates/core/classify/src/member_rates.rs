//! Rates of the members of sets, as actions ask for them.

use narrows_packet::PaceId;

/// Where the members of sets have their rates: one worker's view, which others change.
pub trait MemberRates: Send {
    /// Follows what others have changed. Called once a batch, before packets are looked up.
    fn follow(&mut self);

    /// The rate in the set `name` of packets with `address`, which is the first 32 bits with IPv4.
    /// `None` if no member covers it, the member has no rate, or there is no such set.
    fn rate_of(&self, name: &str, address: u128, is_v6: bool) -> Option<PaceId>;
}
