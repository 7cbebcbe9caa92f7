//! What members' objects are called in a workspace.
//!
//! An object keeps its name where that is free in its namespace when it is first seen; otherwise its cluster's name is
//! put behind it, and a number where even that is taken. A name stays as long as the object does.

use machinery::resource::Tree;
use sha2::{Digest, Sha256};

/// The longest name that objects may have.
const LONGEST_NAME: usize = 253;
/// The longest value that labels may have.
pub const LONGEST_LABEL: usize = 63;

/// `always`: with the cluster's name, also where its own is free.
pub fn shown_name(name: &str, cluster: &str, always: bool, is_taken: impl Fn(&str) -> bool) -> String {
    if !always && !is_taken(name) {
        return name.to_owned();
    }
    let cluster = label_of(cluster);
    let first = joined(name, cluster);
    if !is_taken(&first) {
        return first;
    }
    let mut number: u64 = 2;
    loop {
        let next = joined(name, &format!("{cluster}-{number}"));
        if !is_taken(&next) {
            return next;
        }
        number += 1;
    }
}

/// Both, as far as there is room: of a name that is too long a part stays, and a hash of all of it.
fn joined(name: &str, suffix: &str) -> String {
    let whole = format!("{name}-{suffix}");
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    let digest = Sha256::digest(name.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let room = LONGEST_NAME.saturating_sub(suffix.len() + hash.len() + 2);
    format!("{}-{hash}-{suffix}", cut(name, room))
}

/// The cluster's name as the value of a label.
pub fn label_of(cluster: &str) -> &str {
    cut(cluster, LONGEST_LABEL)
}

/// At most `room` bytes of it, with something readable at its end.
fn cut(text: &str, room: usize) -> &str {
    let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().trim_end_matches(['-', '.', '_'])
}

/// The members of metadata by which an object is known.
pub struct Identity {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The member's, which means nothing here.
    pub revision: String,
}

impl Identity {
    /// `None`: it has no name, no namespace or no UID, so that it is no object of a namespaced kind.
    pub fn of(tree: &Tree) -> Option<Identity> {
        let metadata = tree.get("metadata")?.as_object()?;
        let text = |key: &str| metadata.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let identity = Identity {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            revision: text("resourceVersion"),
        };
        let is_key = |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && !text.contains('/');
        let whole = is_key(&identity.namespace) && is_key(&identity.name) && !identity.uid.is_empty();
        whole.then_some(identity)
    }
}

/// Whether one revision of a member is before another: they are numbers, and only if both are.
pub fn is_older(one: &str, other: &str) -> bool {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one < other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_keeps_its_name_and_the_others_carry_their_cluster() {
        let rows: [(&[&str], bool, &str); 5] = [
            (&[], false, "web-0"),
            (&["web-0"], false, "web-0-eu-1"),
            (&["web-0", "web-0-eu-1"], false, "web-0-eu-1-2"),
            (&["web-0", "web-0-eu-1", "web-0-eu-1-2"], false, "web-0-eu-1-3"),
            (&[], true, "web-0-eu-1"),
        ];
        for (taken, always, name) in rows {
            assert_eq!(shown_name("web-0", "eu-1", always, |it| taken.contains(&it)), name, "{taken:?}");
        }
    }

    proptest! {
        #[test]
        fn names_are_short_enough_free_and_tell_apart(
            name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", cluster in "[a-z]([a-z0-9-]{0,200}[a-z0-9])?", rounds in 1usize..6,
        ) {
            let mut taken: Vec<String> = Vec::new();
            for _ in 0..rounds {
                let next = shown_name(&name, &cluster, false, |it| taken.iter().any(|known| known == it));
                prop_assert!(next.len() <= LONGEST_NAME, "{}", next);
                prop_assert!(!taken.contains(&next));
                prop_assert!(next.starts_with(|it: char| it.is_ascii_alphanumeric()));
                prop_assert!(next.ends_with(|it: char| it.is_ascii_alphanumeric()));
                taken.push(next);
            }
        }

        #[test]
        fn any_text_can_be_cut(text in ".*", room in 0usize..80) {
            prop_assert!(cut(&text, room).len() <= room);
        }
    }

    #[test]
    fn revisions_are_compared_as_numbers_and_words_not_at_all() {
        assert!(is_older("9", "10"));
        assert!(!is_older("10", "9") && !is_older("9", "9") && !is_older("a", "9") && !is_older("", "1"));
    }
}
