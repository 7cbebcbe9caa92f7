//! Numbers that specs give as such or as a part of a hundred.

use serde_json::Value;

/// `value` of `total`: a number, or `25%`.
pub fn share(value: Option<&Value>, total: i64, round_up: bool) -> Option<i64> {
    let value = value?;
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let product = percent.checked_mul(total)?;
    Some(if round_up {
        product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
    } else {
        product / 100
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_a_hundred_round_as_asked() {
        let table = [
            (json!(3), 10, true, Some(3)),
            (json!("25%"), 10, true, Some(3)),
            (json!("25%"), 10, false, Some(2)),
            (json!("100%"), 7, false, Some(7)),
            (json!("0%"), 7, true, Some(0)),
            (json!("many"), 7, true, None),
            (json!("9223372036854775807%"), 7, true, None),
        ];
        for (value, total, up, expected) in table {
            assert_eq!(share(Some(&value), total, up), expected, "{value} of {total}");
        }
        assert_eq!(share(None, 3, true), None);
    }
}
