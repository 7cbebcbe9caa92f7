//! Revisions: positions in the history of one workspace.

use std::fmt;

/// A position in a workspace's log: which epoch, and which record in it.
///
/// To clients it is `resourceVersion`, the decimal integer `epoch · 2³⁶ + seq`, below 2⁵³ so that every JSON
/// reader keeps it exact. It grows strictly within a workspace, means nothing across workspaces, and is the same
/// on every peer. Failover, forced promotion and restore each begin a new epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    const SEQ_BITS: u32 = 36;
    pub const MAX: Revision = Revision((1 << 53) - 1);
    /// Before every record of every history.
    pub const ZERO: Revision = Revision(0);
    /// Of objects of the shared base: older than anything a workspace has written itself.
    pub const BASE: Revision = Revision(1);

    /// The position before the first record of `epoch`.
    pub fn start_of_epoch(epoch: u32) -> Self {
        debug_assert!((1..1 << 17).contains(&epoch), "epochs run from 1 to 2^17");
        Self(u64::from(epoch) << Self::SEQ_BITS)
    }

    pub fn from_u64(value: u64) -> Option<Self> {
        (value <= Self::MAX.0).then_some(Self(value))
    }

    /// As clients write it: decimal, no sign, no leading zero.
    pub fn parse(text: &str) -> Option<Self> {
        let canonical = text == "0"
            || (!text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
        if !canonical {
            return None;
        }
        text.parse().ok().and_then(Self::from_u64)
    }

    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub fn epoch(self) -> u32 {
        (self.0 >> Self::SEQ_BITS) as u32
    }

    pub fn seq(self) -> u64 {
        self.0 & ((1 << Self::SEQ_BITS) - 1)
    }

    /// The next position in the same epoch.
    pub fn next(self) -> Self {
        debug_assert!(self.seq() + 1 < (1 << Self::SEQ_BITS), "an epoch holds 2^36 records");
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch(), self.seq())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_parts_agree() {
        let revision = Revision::start_of_epoch(3).next().next();
        assert_eq!((revision.epoch(), revision.seq()), (3, 2));
        assert_eq!(revision.to_string(), (3u64 * (1 << 36) + 2).to_string());
        assert_eq!(Revision::parse(&revision.to_string()), Some(revision));
    }

    #[test]
    fn only_canonical_decimals_parse() {
        for bad in
            ["", "-1", "+1", "01", "1.0", "0x1", " 1", "1 ", "9007199254740992", "99999999999999999999"]
        {
            assert_eq!(Revision::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Revision::parse("0"), Some(Revision::ZERO));
    }
}
