use super::*;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn printing_is_canonical() {
    for (text, printed) in [
        ("0", "0"),
        ("0Mi", "0"),
        ("1.5", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1000m", "1"),
        ("1000k", "1M"),
        ("1500k", "1500k"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("10e2", "1e3"),
        ("1e3", "1e3"),
        ("12E6", "12E6"),
        ("100e-3", "100e-3"),
        ("0.1m", "100u"),
        ("0.00000000001", "1n"),
        ("-0.00000000001", "-1n"),
        ("-1.5", "-1500m"),
        ("1Ei", "1Ei"),
        ("9Ei", "9223372036854775807"),
        ("99999999999999999999999999999999999999999Ki", "9223372036854775807"),
        ("12345678901234567890", "12345678901234567890"),
    ] {
        assert_eq!(quantity(text).to_string(), printed, "{text}");
    }
}

#[test]
fn a_text_without_fraction_is_kept() {
    for text in ["+5", "5.", "05", "1.500", "1025Ki", "1e03", "100m"] {
        assert_eq!(quantity(text).to_string(), text);
    }
}

#[test]
fn what_is_no_quantity_is_explained() {
    for (text, error) in [
        ("", QuantityError::Format),
        (" 1", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("1x", QuantityError::Format),
        ("1.2.3", QuantityError::Format),
        ("é", QuantityError::Format),
        ("1mi", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1Ki5", QuantityError::Suffix),
    ] {
        assert_eq!(Quantity::parse(text), Err(error), "{text:?}");
    }
}

#[test]
fn comparison_is_by_value() {
    assert_eq!(quantity("1000m"), quantity("1"));
    assert_eq!(quantity("1Ki"), quantity("1024"));
    assert!(quantity("1Gi") > quantity("1G"));
    assert!(quantity("-1") < quantity("1n"));
    assert!(quantity("1e100") > quantity("1e99"));
    assert!(quantity("-1e100") < quantity("-1"));
}

#[test]
fn sums_keep_the_format_of_the_first() {
    for (a, b, sum) in [
        ("1", "500m", "1500m"),
        ("1Gi", "512Mi", "1536Mi"),
        ("0", "1Gi", "1Gi"),
        ("1Gi", "1k", "1073742824"),
        ("100m", "-100m", "0"),
    ] {
        assert_eq!(quantity(a).add(&quantity(b)).to_string(), sum, "{a} + {b}");
    }
    assert_eq!(quantity("2").sub(&quantity("500m")).to_string(), "1500m");
}

#[test]
fn whole_numbers_are_rounded_away_from_zero() {
    for (text, value, milli) in [
        ("1.1", 2, 1100),
        ("-1.1", -2, -1100),
        ("1n", 1, 1),
        ("2Ki", 2048, 2_048_000),
        ("1e40", i64::MAX, i64::MAX),
    ] {
        assert_eq!((quantity(text).value(), quantity(text).milli_value()), (value, milli), "{text}");
    }
}

fn texts() -> impl Strategy<Value = String> {
    let suffix = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "e2", "E-1",
    ]);
    (any::<bool>(), 0u64..1_000_000_000, 0u32..10_000, suffix).prop_map(
        |(negative, whole, fraction, suffix)| {
            let sign = if negative { "-" } else { "" };
            if fraction % 3 == 0 {
                format!("{sign}{whole}{suffix}")
            } else {
                format!("{sign}{whole}.{fraction}{suffix}")
            }
        },
    )
}

proptest! {
    #[test]
    fn printing_loses_nothing(text in texts()) {
        let once = quantity(&text);
        let again = quantity(&once.to_string());
        prop_assert_eq!(&once, &again);
        prop_assert_eq!(once.to_string(), again.to_string());
    }

    #[test]
    fn addition_commutes_and_undoes(a in texts(), b in texts()) {
        let (a, b) = (quantity(&a), quantity(&b));
        prop_assert_eq!(a.add(&b), b.add(&a));
        prop_assert_eq!(a.add(&b).sub(&b), a);
    }

    #[test]
    fn order_agrees_with_difference(a in texts(), b in texts()) {
        let (a, b) = (quantity(&a), quantity(&b));
        let difference = a.sub(&b);
        let sign = if difference.is_zero() { Ordering::Equal } else if difference.is_negative() { Ordering::Less } else { Ordering::Greater };
        prop_assert_eq!(a.cmp(&b), sign);
    }
}
