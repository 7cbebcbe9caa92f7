use super::{
    Action, Content, History, Op, Outcome, Refusal, Revisions, Seen, search, shrink,
    simulated::{ALL_DAMAGES, Damage, Simulation},
};

const SEEDS: u64 = 300;

#[test]
fn what_an_honest_server_says_is_explained() {
    for seed in 0..SEEDS {
        let simulation = Simulation::run(seed, 5, 400);
        for log in [None, Some(&simulation.log[..])] {
            if let Err(violation) = simulation.history.check(log) {
                panic!("seed {seed}, log {}: {violation}", log.is_some());
            }
        }
    }
}

#[test]
fn every_lie_is_found_without_a_log() {
    for damage in ALL_DAMAGES {
        for seed in 0..SEEDS / 3 {
            let mut simulation = Simulation::run(seed, 4, 120);
            simulation.suffer(damage);
            simulation.go_on(120);
            assert!(simulation.history.check(None).is_err(), "{damage:?} passed with seed {seed}");
        }
    }
}

#[test]
fn every_lie_is_found_with_a_log() {
    // Those that are also in the log are the business of who checks the log.
    for damage in ALL_DAMAGES {
        for seed in 0..SEEDS / 3 {
            let mut simulation = Simulation::run(seed, 4, 120);
            simulation.suffer(damage);
            simulation.go_on(120);
            let found = simulation.history.check(Some(&simulation.log));
            assert!(found.is_err(), "{damage:?} passed with seed {seed}");
        }
    }
}

#[test]
fn the_evidence_is_small() {
    for damage in [Damage::LostWrite, Damage::StaleRead, Damage::FalseAbsence, Damage::IgnoredPrecondition] {
        let mut lengths = Vec::new();
        for seed in 0..30 {
            let mut simulation = Simulation::run(seed, 4, 300);
            simulation.suffer(damage);
            simulation.go_on(100);
            let violation = simulation.history.check(Some(&simulation.log)).expect_err("it is found");
            lengths.push(violation.evidence.lines().count());
        }
        lengths.sort_unstable();
        assert!(lengths[lengths.len() / 2] <= 12, "{damage:?}: {lengths:?}");
    }
}

#[test]
fn evidence_that_takes_too_long_to_make_small_is_shown_as_it_is() {
    for (most, is_small) in [(0, false), (1000, false), (u64::MAX, true)] {
        let mut simulation = Simulation::run(3, 4, 300);
        simulation.suffer(Damage::StaleRead);
        simulation.go_on(100);
        let revisions = Revisions::gather(&simulation.history, None).expect("they are in order");
        let violation = shrink::evidence(
            &simulation.history.ops,
            &revisions,
            "stuck somewhere".to_owned(),
            &search::Effort::new(most),
        );
        assert_eq!(!violation.evidence.contains("may be more than is needed"), is_small, "{violation}");
        assert!(violation.evidence.lines().count() <= 45, "{violation}");
    }
}

fn op(id: u64, key: &str, times: (u64, u64), action: Action, outcome: Outcome) -> Op {
    let (called, answered) = times;
    Op { id, client: id as usize, server: 0, key: key.to_owned(), called, answered, action, outcome }
}

fn written(id: u64, revision: u64) -> Outcome {
    Outcome::Written(Seen { content: Content::of(id), revision })
}

fn read(id: u64, revision: u64) -> Outcome {
    Outcome::Read(Some(Seen { content: Content::of(id), revision }))
}

/// Histories by hand: (what they show, whether they are right, operations).
#[test]
fn histories_by_hand() {
    let update = |expected| Action::Update { expected };
    let cases: Vec<(&str, bool, Vec<Op>)> = vec![
        (
            "two reads beside a write may see both sides of it, in order",
            true,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 9), update(5), written(2, 6)),
                op(3, "a", (3, 4), Action::Get, read(1, 5)),
                op(4, "a", (5, 6), Action::Get, read(2, 6)),
            ],
        ),
        (
            "but not against it",
            false,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 9), update(5), written(2, 6)),
                op(3, "a", (3, 4), Action::Get, read(2, 6)),
                op(4, "a", (5, 6), Action::Get, read(1, 5)),
            ],
        ),
        (
            "a write of unknown outcome may happen after its client has gone",
            true,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 3), update(5), Outcome::Unknown),
                op(3, "a", (4, 5), Action::Get, read(1, 5)),
                op(4, "a", (6, 7), Action::Get, read(2, 8)),
            ],
        ),
        (
            "an unseen one may explain a conflict",
            true,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 3), update(5), Outcome::Unknown),
                op(3, "a", (4, 5), update(5), Outcome::Refused(Refusal::Conflict)),
            ],
        ),
        (
            "nothing else does",
            false,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(3, "a", (4, 5), update(5), Outcome::Refused(Refusal::Conflict)),
            ],
        ),
        (
            "a delete of unknown outcome deletes at most once",
            false,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 3), Action::Delete { expected: None }, Outcome::Unknown),
                op(3, "a", (4, 5), Action::Get, Outcome::Read(None)),
                op(4, "a", (6, 7), Action::Create, written(4, 9)),
                op(5, "a", (8, 9), Action::Get, Outcome::Read(None)),
            ],
        ),
        (
            "a patch keeps what it does not name",
            false,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "a", (2, 3), update(5), written(2, 6)),
                op(
                    3,
                    "a",
                    (4, 5),
                    Action::Patch,
                    Outcome::Written(Seen { content: Content { put: 1, patch: Some(3) }, revision: 7 }),
                ),
            ],
        ),
        (
            "a list sees all objects at one moment",
            false,
            vec![
                op(1, "a", (0, 1), Action::Create, written(1, 5)),
                op(2, "b", (2, 3), Action::Create, written(2, 6)),
                op(
                    3,
                    "",
                    (4, 5),
                    Action::List,
                    Outcome::Listed {
                        revision: 6,
                        items: [("b".to_owned(), Seen { content: Content::of(2), revision: 6 })].into(),
                    },
                ),
            ],
        ),
    ];
    for (what, is_right, ops) in cases {
        let found = History { ops }.check(None);
        assert_eq!(found.is_ok(), is_right, "{what}: {found:?}");
    }
}
