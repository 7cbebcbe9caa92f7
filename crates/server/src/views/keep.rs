//! What was seen of members, in a file: after a restart it is shown, as not seen since, until it is confirmed.
//!
//! ```text
//!   magic · frame: which clusters · (frame: whose object · frame: the object)* · CRC32C of all before
//! ```
//!
//! A frame is its length (u32, little endian) and its bytes. The file is written whole, and replaced at once.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8] = b"hanse view 1\n";

/// All that is kept of one view.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept {
    pub meta: Meta,
    pub objects: Vec<(Whose, Bytes)>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Of the revisions that were handed out.
    pub epoch: u32,
    pub clusters: Vec<KeptCluster>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptCluster {
    pub name: String,
    pub identity: String,
    /// The kinds of which all was seen.
    pub seen: Vec<String>,
    /// UIDs there, UIDs here, and whether the clusters have whole copies.
    pub placed: Vec<(String, String, bool)>,
}

/// Whose an object is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Whose {
    pub kind: String,
    pub cluster: String,
    /// Empty: the one that it shows in, as in files that were written before they could differ.
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub revision: String,
    pub owner: Option<String>,
}

/// Why a file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is not a view's file")]
    Foreign,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("its content makes no sense")]
    Content,
}

impl Kept {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        push_json(&mut out, &self.meta);
        for (whose, object) in &self.objects {
            push_json(&mut out, whose);
            push(&mut out, object);
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &Bytes) -> Result<Kept, Damage> {
        if !bytes.starts_with(MAGIC) {
            return Err(Damage::Foreign);
        }
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(Damage::Checksum)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
            return Err(Damage::Checksum);
        }
        let mut rest = bytes.slice(MAGIC.len()..content.len().max(MAGIC.len()));
        let meta: Meta = take_json(&mut rest)?;
        let mut objects = Vec::new();
        while !rest.is_empty() {
            let whose: Whose = take_json(&mut rest)?;
            objects.push((whose, take(&mut rest)?));
        }
        Ok(Kept { meta, objects })
    }
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    // No object is as large as that.
    let length = u32::try_from(bytes.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes.get(..length as usize).unwrap_or_default());
}

fn push_json(out: &mut Vec<u8>, value: &impl Serialize) {
    push(out, &serde_json::to_vec(value).unwrap_or_default());
}

fn take(rest: &mut Bytes) -> Result<Bytes, Damage> {
    let length = rest.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let end = length.and_then(|length| length.checked_add(4)).ok_or(Damage::Content)?;
    if end > rest.len() {
        return Err(Damage::Content);
    }
    let frame = rest.slice(4..end);
    *rest = rest.slice(end..);
    Ok(frame)
}

fn take_json<T: for<'a> Deserialize<'a>>(rest: &mut Bytes) -> Result<T, Damage> {
    serde_json::from_slice(&take(rest)?).map_err(|_| Damage::Content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> Kept {
        let cluster = KeptCluster {
            name: "eu-1".into(),
            identity: "k".into(),
            seen: vec!["pods".into()],
            placed: vec![("a".into(), "b".into(), true)],
        };
        let whose =
            Whose { kind: "pods".into(), cluster: "eu-1".into(), name: "web".into(), ..Whose::default() };
        Kept {
            meta: Meta { epoch: 70_000, clusters: vec![cluster] },
            objects: vec![(whose.clone(), Bytes::from_static(b"{}")), (whose, Bytes::new())],
        }
    }

    #[test]
    fn what_was_kept_reads_back() {
        for kept in [some(), Kept::default()] {
            assert_eq!(Kept::decode(&kept.encode().into()), Ok(kept));
        }
    }

    #[test]
    fn files_of_before_are_read() {
        let older = r#"{"kind":"pods","cluster":"eu-1","name":"web","uid":"u","revision":"7","owner":null}"#;
        let whose: Whose = serde_json::from_str(older).unwrap();
        assert_eq!((whose.namespace.as_str(), whose.name.as_str()), ("", "web"));
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_damaged() {
        let whole = some().encode();
        for end in 0..whole.len() {
            let cut = Bytes::copy_from_slice(&whole[..end]);
            assert!(Kept::decode(&cut).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn one_wrong_byte_is_damage(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = some().encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Kept::decode(&bytes.into()).is_err());
        }

        #[test]
        fn nonsense_with_a_right_checksum_is_damage(content in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(content);
            let sum = crc32c::crc32c(&bytes);
            bytes.extend(sum.to_le_bytes());
            prop_assert_eq!(Kept::decode(&bytes.into()).err(), Some(Damage::Content));
        }
    }
}
