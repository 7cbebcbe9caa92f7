//! What is to be done about one object in one member, as a value.

use compact_str::CompactString;

/// What the Assignment wants of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// There is to be a copy.
    Keep,
    /// A copy that is there stays for now; none is made.
    Stay,
    /// There is to be none.
    Remove,
    /// A copy that is there is nobody's from now on.
    Release,
}

/// What the member has at the place of the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// No copy is known, but something else may be there.
    Unseen,
    Absent,
    /// A copy, made from this very object.
    Ours {
        uid: CompactString,
        deleting: bool,
        matches: bool,
    },
    /// A copy that has done its part, and is to be followed by another.
    Former {
        uid: CompactString,
        deleting: bool,
    },
    /// A copy that was made after the one that is to be there: whoever made it knew more than is known here, as where an
    /// older backup was restored.
    Later {
        uid: CompactString,
        deleting: bool,
    },
    /// A copy of an object that is no more. `ended`: it ran once, and does not run again.
    Leftover {
        uid: CompactString,
        deleting: bool,
        ended: bool,
    },
    /// Somebody else's.
    Foreign {
        uid: CompactString,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the member what is there.
    Look,
    /// Make a copy.
    Create,
    /// Make the object with this UID what it is to be.
    Apply(CompactString),
    /// Nothing: it is as it is to be.
    Leave,
    Delete(CompactString),
    /// Take off what says that it is a copy.
    Release(CompactString),
    /// Wait until the object is gone that is being deleted.
    Await,
    /// Nothing: what is there is not ours.
    Conflict,
    /// Nothing: none of it is left.
    Gone,
}

/// `adopt`: the user wants objects of that name to be taken over.
pub fn plan(wish: Wish, there: &There, adopt: bool) -> Action {
    match (wish, there) {
        (_, There::Unseen) => Action::Look,
        (Wish::Release, There::Ours { uid, .. } | There::Former { uid, .. } | There::Later { uid, .. }) => {
            Action::Release(uid.clone())
        }
        (
            _,
            There::Ours { deleting: true, .. }
            | There::Former { deleting: true, .. }
            | There::Later { deleting: true, .. },
        ) => Action::Await,
        (Wish::Keep | Wish::Stay, There::Later { .. }) => Action::Conflict,
        (Wish::Keep | Wish::Remove, There::Former { uid, .. }) | (Wish::Remove, There::Later { uid, .. }) => {
            Action::Delete(uid.clone())
        }
        (Wish::Stay, There::Former { .. }) => Action::Leave,
        (Wish::Keep, There::Leftover { deleting: true, .. }) => Action::Await,
        (Wish::Keep, There::Absent) => Action::Create,
        (Wish::Keep | Wish::Stay, There::Ours { matches: true, .. }) => Action::Leave,
        (Wish::Keep | Wish::Stay, There::Ours { uid, .. }) => Action::Apply(uid.clone()),
        // Taken for the new one, it would count as run and never be.
        (Wish::Keep, There::Leftover { ended: true, .. }) if !adopt => Action::Conflict,
        (Wish::Keep, There::Leftover { uid, .. }) => Action::Apply(uid.clone()),
        (Wish::Keep, There::Foreign { uid }) if adopt => Action::Apply(uid.clone()),
        (Wish::Keep, There::Foreign { .. }) => Action::Conflict,
        (Wish::Remove, There::Ours { uid, .. }) => Action::Delete(uid.clone()),
        (
            Wish::Stay | Wish::Remove | Wish::Release,
            There::Absent | There::Leftover { .. } | There::Foreign { .. },
        ) => Action::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_meets_everything_that_may_be_there() {
        let uid = || CompactString::from("u");
        let ours = |deleting, matches| There::Ours { uid: uid(), deleting, matches };
        let leftover = |deleting, ended| There::Leftover { uid: uid(), deleting, ended };
        let (apply, delete) = (Action::Apply(uid()), Action::Delete(uid()));
        use Action::{Await, Conflict, Create, Gone, Leave, Look};
        // What is there; then what is done if it is to be kept, to stay, to go.
        let rows = [
            (There::Unseen, [Look, Look, Look]),
            (There::Absent, [Create, Gone, Gone]),
            (ours(false, true), [Leave, Leave, delete.clone()]),
            (ours(false, false), [apply.clone(), apply.clone(), delete.clone()]),
            (ours(true, true), [Await, Await, Await]),
            (There::Former { uid: uid(), deleting: false }, [delete.clone(), Leave, delete.clone()]),
            (There::Former { uid: uid(), deleting: true }, [Await, Await, Await]),
            (There::Later { uid: uid(), deleting: false }, [Conflict, Conflict, delete.clone()]),
            (There::Later { uid: uid(), deleting: true }, [Await, Await, Await]),
            (leftover(false, false), [apply.clone(), Gone, Gone]),
            (leftover(true, false), [Await, Gone, Gone]),
            (leftover(false, true), [Conflict, Gone, Gone]),
            (leftover(true, true), [Await, Gone, Gone]),
            (There::Foreign { uid: uid() }, [Conflict, Gone, Gone]),
        ];
        for (there, actions) in rows {
            for (wish, action) in [Wish::Keep, Wish::Stay, Wish::Remove].into_iter().zip(actions) {
                assert_eq!(plan(wish, &there, false), action, "{wish:?} {there:?}");
            }
        }
        assert_eq!(plan(Wish::Release, &ours(false, true), false), Action::Release(uid()));
        assert_eq!(plan(Wish::Release, &There::Foreign { uid: uid() }, true), Gone);
        assert_eq!(plan(Wish::Keep, &There::Foreign { uid: uid() }, true), apply, "it may be taken over");
        assert_eq!(plan(Wish::Keep, &leftover(false, true), true), apply, "the user says that it is the one");
        let later = There::Later { uid: uid(), deleting: false };
        assert_eq!(
            plan(Wish::Keep, &later, true),
            Conflict,
            "nothing that runs goes because of an old backup"
        );
        assert_eq!(plan(Wish::Remove, &There::Foreign { uid: uid() }, true), Gone, "it was not taken over");
    }
}
