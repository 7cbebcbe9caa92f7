//! FNV-1a with 64 bits: for what is written down and must be the same in every build.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

pub fn hash(bytes: &[u8]) -> u64 {
    hash_from(OFFSET, bytes)
}

/// From another beginning.
pub fn hash_from(offset: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(offset, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_is_published() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
