//! Numbers: their range, bounds and factors. Whole numbers are compared as such, with bounds cut to whole ones.

use serde_json::{Number, Value};

use super::{super::Path, Fault, Kind, Structural};
use crate::gotext;

/// What is wrong with a number, in upstream's order.
pub fn mistakes(
    number: &Number,
    schema: &Structural,
    types: &[&str],
    format: &str,
    path: &Path<'_>,
) -> Vec<Fault> {
    let place = path.in_body();
    let range = Range::of(types, format);
    let value = Given::of(number);
    let mut faults = Vec::new();
    faults.extend(range.mistake(value, "Checked", &place));
    if let Some(factor) = schema.multiple_of {
        let misfit = range.mistake(Given::Float(factor), "MultipleOf", &place);
        let value = if misfit.is_some() { value.as_float() } else { value };
        faults.extend(misfit);
        faults.extend(value.factor_mistake(factor, &place));
    }
    let bounds = [
        (schema.minimum, schema.exclusive_minimum, Bound::Minimum, "Minimum boundary"),
        (schema.maximum, schema.exclusive_maximum, Bound::Maximum, "Maximum boundary"),
    ];
    for (limit, exclusive, bound, name) in bounds {
        let Some(limit) = limit else { continue };
        let misfit = range.mistake(Given::Float(limit), name, &place);
        let value = if misfit.is_some() { value.as_float() } else { value };
        faults.extend(misfit);
        faults.extend(value.bound_mistake(bound, limit, exclusive, &place));
    }
    faults
}

#[derive(Clone, Copy)]
enum Given {
    Whole(i64),
    Float(f64),
}

#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Minimum,
    Maximum,
}

impl Given {
    fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(whole) => Given::Whole(whole),
            None => Given::Float(number.as_f64().unwrap_or_default()),
        }
    }

    fn as_float(self) -> Self {
        match self {
            Given::Whole(whole) => Given::Float(whole as f64),
            float => float,
        }
    }

    fn value(self) -> Value {
        match self {
            Given::Whole(whole) => whole.into(),
            Given::Float(float) => float.into(),
        }
    }

    fn bound_mistake(self, bound: Bound, limit: f64, exclusive: bool, place: &str) -> Option<Fault> {
        let (order, shown) = match self {
            Given::Whole(whole) => (whole.partial_cmp(&go_i64(limit)), go_i64(limit).to_string()),
            Given::Float(float) => (float.partial_cmp(&limit), gotext::plain_float(limit)),
        };
        let (beyond, words) = match bound {
            Bound::Maximum => (order.is_some_and(std::cmp::Ordering::is_gt), "less than"),
            Bound::Minimum => (order.is_some_and(std::cmp::Ordering::is_lt), "greater than"),
        };
        let wrong = beyond || exclusive && order.is_some_and(std::cmp::Ordering::is_eq);
        let equal = if exclusive { "" } else { " or equal to" };
        wrong.then(|| Fault::invalid(place, &format!("should be {words}{equal} {shown}"), self.value()))
    }

    fn factor_mistake(self, factor: f64, place: &str) -> Option<Fault> {
        let (positive, shown, factor_value, divides) = match self {
            Given::Whole(whole) => {
                let factor = go_i64(factor);
                let divides = factor > 0 && whole % factor == 0;
                (factor > 0, factor.to_string(), Value::from(factor), divides)
            }
            Given::Float(float) => {
                let quotient = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
                (factor > 0.0, gotext::plain_float(factor), Value::from(factor), is_whole(quotient))
            }
        };
        if !positive {
            let message = format!("factor MultipleOf declared for {place} must be positive: {shown}");
            return Some(Fault::at(place, message, Kind::Invalid(factor_value)));
        }
        (!divides).then(|| Fault::invalid(place, &format!("should be a multiple of {shown}"), self.value()))
    }
}

/// What a type and a format can hold. The format counts where there is one type.
struct Range<'s> {
    type_name: &'s str,
    format: &'s str,
}

impl<'s> Range<'s> {
    fn of(types: &[&'s str], format: &'s str) -> Self {
        match types {
            ["integer"] => Range { type_name: "integer", format: one_of(format, ["int32", "int64"]) },
            ["number"] => Range { type_name: "number", format: one_of(format, ["float", "double"]) },
            _ => Range { type_name: "", format: "" },
        }
    }

    fn mistake(&self, value: Given, what: &str, place: &str) -> Option<Fault> {
        let fits = match (self.type_name, self.format, value) {
            ("integer", "int32", Given::Whole(whole)) => i32::try_from(whole).is_ok(),
            ("integer", _, Given::Whole(_)) => true,
            ("integer", "int32", Given::Float(float)) => {
                float.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(&float)
            }
            ("integer", _, Given::Float(float)) => {
                // 2^63 is the first float that is too large.
                float.fract() == 0.0
                    && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float)
            }
            (_, "float", Given::Float(float)) => (float as f32).is_finite(),
            _ => true,
        };
        let format = if self.format.is_empty() {
            "(default format)".to_owned()
        } else {
            format!("with format {}", self.format)
        };
        let type_name = self.type_name;
        (!fits)
            .then(|| Fault::sentence(format!("{what} value must be of type {type_name} {format} in {place}")))
    }
}

fn one_of<'s>(format: &'s str, known: [&str; 2]) -> &'s str {
    if known.contains(&format) { format } else { "" }
}

/// As Go converts a float on the machines that upstream is built for: what does not fit becomes the least.
pub fn go_i64(float: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    if fits { float as i64 } else { i64::MIN }
}

/// Whether a float is an integer that JSON can hold, or so near to one that it is taken for it.
pub fn is_whole(float: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !(-MAX..=MAX).contains(&float) {
        return false;
    }
    if float == float.trunc() {
        return true;
    }
    // Upstream measures against the number cut to an unsigned one, which only helps positive numbers.
    let near = float.trunc();
    if float < 0.0 || near == 0.0 {
        return false;
    }
    (float - near).abs() / (float.abs() + near.abs()) < EPSILON
}
