//! Randomness: from the operating system, or from a seed.

use parking_lot::Mutex;

/// A source of random bytes.
pub trait Random: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);

    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The operating system's generator; fit for keys.
pub struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // Without randomness no key or UID may be made: there is no safe way to go on.
        getrandom::fill(bytes).expect("the operating system gives no random bytes");
    }
}

/// SplitMix64 from a seed; for simulations, never for keys.
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }

    /// A number below `bound`; `bound` must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    fn next_u64(&self) -> u64 {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (mut first, mut second) = ([0; 37], [0; 37]);
        SeededRandom::new(7).fill(&mut first);
        SeededRandom::new(7).fill(&mut second);
        assert_eq!(first, second);
        SeededRandom::new(8).fill(&mut second);
        assert_ne!(first, second);
    }
}
