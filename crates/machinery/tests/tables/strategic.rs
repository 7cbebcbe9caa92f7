//! Calls of apimachinery's strategicpatch, repeated.

use machinery::{patch::PatchError, schema::Types, strategic::strategic_merge};

use crate::{
    Call,
    merge::{Outcome, expect, same_value},
};

pub fn check(call: &Call<'_>) -> Outcome {
    let fields = call.fields;
    // Types are for ever; a test may leak some.
    let types: &'static Types = Box::leak(Box::new(Types::read(call.text("types").to_owned().leak())));
    let message = types.get(call.text("message")).ok_or("no type")?;
    let mut object = fields["original"].clone();
    match (strategic_merge(types, message, &mut object, fields["patch"].clone()), fields["error"].as_str()) {
        (Ok(()), None) => same_value("object", &object, &fields["result"]),
        (Ok(()), Some(error)) => Err(format!("upstream refuses it: {error}\n  ours: {object}")),
        (
            Err(PatchError::Malformed(why) | PatchError::Inapplicable(why) | PatchError::TooLarge(why)),
            theirs,
        ) => expect("error", Some(why.as_str()), theirs),
    }
}
