//! Images that cannot be had: those of a registry below `.invalid`, a name that no resolver finds, here or on a real node.

use std::time::Duration;

use serde_json::Value;

use crate::tree;

/// The pause after the first attempt; it doubles.
const FIRST_PAUSE: u64 = 10;
const LONGEST_PAUSE: u64 = 300;
/// So long it is said how an attempt failed; then, that the next one is waited for.
const SHOWN: u64 = 2;

/// Why a container waits for its image.
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// Until it waits for another reason.
    pub again: Option<Duration>,
    /// What a kubelet tells when it begins to wait for this reason.
    pub notes: Vec<(bool, &'static str, String)>,
}

/// The registry, if an image cannot be had from there.
fn missing(image: &str) -> Option<&str> {
    let (registry, _) = image.split_once('/')?;
    let host = registry.split(':').next().unwrap_or_default();
    host.ends_with(".invalid").then_some(host)
}

/// `waited`: since it was pulled for the first time. `None`: it is there.
pub fn failure(container: &Value, waited: Duration) -> Option<Failure> {
    let image = tree::text(container, "/image");
    let host = missing(image)?;
    if tree::text(container, "/imagePullPolicy") == "Never" {
        return Some(never_pulled(image));
    }
    let unknown = format!("lookup {host}: no such host");
    let why = format!("failed to pull image \"{image}\": {unknown}");
    let (since, pause) = attempt(waited.as_secs());
    Some(match since < SHOWN {
        true => Failure {
            reason: "ErrImagePull",
            again: Some(Duration::from_secs(SHOWN - since)),
            notes: vec![
                (false, "Pulling", format!("Pulling image \"{image}\"")),
                (true, "Failed", format!("Failed to pull image \"{image}\": {unknown}")),
                (true, "Failed", "Error: ErrImagePull".to_owned()),
            ],
            message: why,
        },
        false => Failure {
            reason: "ImagePullBackOff",
            message: format!("Back-off pulling image \"{image}\": ErrImagePull: {why}"),
            again: Some(Duration::from_secs(pause - since)),
            notes: vec![
                (false, "BackOff", format!("Back-off pulling image \"{image}\"")),
                (true, "Failed", "Error: ImagePullBackOff".to_owned()),
            ],
        },
    })
}

fn never_pulled(image: &str) -> Failure {
    let message = format!("Container image \"{image}\" is not present with pull policy of Never");
    let notes = vec![
        (true, "ErrImageNeverPull", message.clone()),
        (true, "Failed", "Error: ErrImageNeverPull".to_owned()),
    ];
    Failure { reason: "ErrImageNeverPull", message, again: None, notes }
}

/// How many seconds ago the last attempt was, and how many are between it and the next.
fn attempt(waited: u64) -> (u64, u64) {
    let (mut since, mut pause) = (waited, FIRST_PAUSE);
    while since >= pause && pause < LONGEST_PAUSE {
        since -= pause;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    (since % pause, pause)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_no_resolver_finds_is_missing() {
        for there in ["web", "web:1", "example.com/web", "invalid/web", "example.com/a.invalid/web"] {
            assert!(missing(there).is_none(), "{there}");
        }
        for gone in ["registry.invalid/web:1", "registry.invalid:5000/team/web@sha256:0"] {
            assert_eq!(missing(gone), Some("registry.invalid"), "{gone}");
        }
    }

    #[test]
    fn attempts_are_further_and_further_apart() {
        let rows = [
            (0, (0, 10)),
            (9, (9, 10)),
            (10, (0, 20)),
            (30, (0, 40)),
            (310, (0, 300)),
            (609, (299, 300)),
            (610, (0, 300)),
            (911, (1, 300)),
        ];
        for (waited, expected) in rows {
            assert_eq!(attempt(waited), expected, "{waited}");
        }
        let container = json!({"image": "registry.invalid/web:1"});
        let reason = |seconds| failure(&container, Duration::from_secs(seconds)).unwrap().reason;
        assert_eq!([0, 2, 10, 12].map(reason), ["ErrImagePull", "ImagePullBackOff"].repeat(2)[..]);
    }
}
