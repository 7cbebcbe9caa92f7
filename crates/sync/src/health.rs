//! Whether a member can be used, with hysteresis: one lost answer is no outage.

use std::time::Duration;

use crate::client::Error;

/// So many failures in a row make a member unusable that was usable.
const FAILURES: u32 = 3;
/// So often in a row it may be too busy to say how it is.
const MOST_BUSY: u32 = 30;
/// After so often in a row another connection is tried: others may be answered on one that is well.
const BUSY_AGAIN: u32 = 3;

/// What came of asking a member how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Good,
    Bad(Trouble),
}

/// What is wrong with a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// One word, from a table of ours.
    pub reason: &'static str,
    pub message: String,
    /// Its API answers, whatever it says.
    pub reachable: bool,
    /// It will not get better by asking again.
    pub definite: bool,
    /// It wants to be left alone for so long.
    pub wait: Option<Duration>,
    /// It gave no answer in time, and answered others meanwhile: it is there, and busy, or we are.
    pub busy: bool,
}

impl Trouble {
    pub fn definite(reason: &'static str, message: impl Into<String>) -> Trouble {
        Trouble { reason, message: message.into(), reachable: true, definite: true, wait: None, busy: false }
    }
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Trouble {
        Trouble {
            reason: error.reason(),
            message: error.to_string(),
            reachable: error.is_answer(),
            definite: false,
            wait: error.retry_after(),
            busy: false,
        }
    }
}

/// What is held of a member after all that it was asked.
#[derive(Debug, Default)]
pub struct Health {
    /// `None`: never asked.
    usable: Option<bool>,
    failures: u32,
    /// How often in a row it was busy.
    busy: u32,
}

impl Health {
    /// Takes an outcome into account; answers whether the member can be used.
    pub fn note(&mut self, outcome: &Outcome) -> bool {
        let usable = match outcome {
            Outcome::Good => {
                // As with KubeFed one is enough: what goes on to fail is lost again after three, and no sooner.
                (self.failures, self.busy) = (0, 0);
                true
            }
            Outcome::Bad(trouble) if trouble.busy && self.usable == Some(true) && self.busy < MOST_BUSY => {
                self.busy += 1;
                true
            }
            Outcome::Bad(trouble) => {
                self.failures = self.failures.saturating_add(1);
                self.usable == Some(true) && !trouble.definite && self.failures < FAILURES
            }
        };
        self.usable = Some(usable);
        usable
    }

    /// Whether it is busy for long, so that it may be the connection which is not as it should be.
    pub fn is_busy_again(&self) -> bool {
        self.busy > 0 && self.busy.is_multiple_of(BUSY_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(definite: bool) -> Outcome {
        let trouble = Trouble::definite("Unreachable", "");
        Outcome::Bad(Trouble { definite, ..trouble })
    }

    fn busy() -> Outcome {
        let trouble = Trouble::definite("Timeout", "");
        Outcome::Bad(Trouble { definite: false, busy: true, ..trouble })
    }

    /// `+` is a good answer, `-` a bad one, `!` a definite one, `~` none while others had some; what is held after each.
    #[test]
    fn a_member_is_lost_only_when_several_answers_say_so_and_back_with_one() {
        let cases = [
            ("+", "u"),
            ("-", "n"),
            ("-+", "nu"),
            ("-++", "nuu"),
            ("+--", "uuu"),
            ("+---", "uuun"),
            ("+--+--", "uuuuuu"),
            ("+---+-++", "uuunuuuu"),
            ("+---+---", "uuunuuun"),
            ("+!", "un"),
            ("+~~~~", "uuuuu"),
            ("+--~-", "uuuun"),
            ("~", "n"),
            ("+---~+", "uuunnu"),
        ];
        for (answers, expected) in cases {
            let mut health = Health::default();
            let held = answers.chars().map(|answer| match answer {
                '+' => health.note(&Outcome::Good),
                '~' => health.note(&busy()),
                answer => health.note(&bad(answer == '!')),
            });
            let held: String = held.map(|usable| if usable { 'u' } else { 'n' }).collect();
            assert_eq!(held, expected, "{answers}");
        }
    }

    /// KubeFed's own cases, by what was answered up to then. It counts how often the same was published, so that a member
    /// that was well for long is lost with one answer: here the last answers count.
    #[test]
    fn what_kubefed_holds_of_a_member_and_what_is_held_here() {
        let rows = [
            ("ready at the beginning", "+", (true, true)),
            ("not ready at the beginning", "-", (false, false)),
            ("not ready within the threshold", "++-", (true, true)),
            ("not ready beyond the threshold, as it counts", "+++-", (false, true)),
            ("not ready beyond the threshold", "+++---", (false, false)),
            ("the first failure after a long time", "++++++++-", (false, true)),
            ("ready again", "+---+", (true, true)),
            ("ready again for long", "+---++", (true, true)),
        ];
        for (name, answers, (_, here)) in rows {
            let mut health = Health::default();
            let held = answers.chars().map(|answer| match answer {
                '+' => health.note(&Outcome::Good),
                _ => health.note(&bad(false)),
            });
            assert_eq!(held.last(), Some(here), "{name}");
        }
        let differs = rows.iter().filter(|(.., (in_kubefed, here))| in_kubefed != here).count();
        assert_eq!(differs, 2, "what is said above, and nothing else");
    }

    #[test]
    fn a_member_that_is_busy_for_very_long_is_lost_all_the_same() {
        let mut health = Health::default();
        health.note(&Outcome::Good);
        let held: Vec<bool> = (0..MOST_BUSY + FAILURES).map(|_| health.note(&busy())).collect();
        assert_eq!(held.iter().filter(|it| !**it).count(), 1, "the last");
        assert!(!health.note(&busy()) && health.note(&Outcome::Good));
    }
}
