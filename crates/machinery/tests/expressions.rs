//! Quantities and the formats of names in expressions: what Kubernetes 1.36 answers.

use std::sync::Arc;

use cel::{Activation, Budget, Env, Value};
use machinery::expressions::Host;

fn evaluate(expression: &str) -> Result<bool, String> {
    let program = Env::kubernetes(Arc::new(Host)).compile(expression).map_err(|error| error.to_string())?;
    let value =
        program.evaluate(&Activation::new(), &mut Budget::default()).map_err(|error| error.to_string())?;
    match value {
        Value::Bool(value) => Ok(value),
        other => Err(format!("{other} is no bool")),
    }
}

#[test]
fn quantities_compute_as_the_api_does() {
    for expression in [
        "quantity('200M') == quantity('0.2G') && quantity('0.2G') == quantity('200M')",
        "quantity('2000k').compareTo(quantity('0.002G')) == 0",
        "quantity('50k').add(quantity('20')) == quantity('50.02k')",
        "quantity('50k').sub(20) == quantity('49.98k')",
        "quantity('50.703k').asApproximateFloat() == 50703.0",
        "quantity('1Gi').isGreaterThan(quantity('1G'))",
        "quantity('1Ki').asInteger() == 1024",
        "!quantity('1.5').isInteger()",
        "!quantity('9999999999999999999999999999999999999G').isInteger()",
        "sign(quantity('-1m')) == -1",
        "!isQuantity('10Mm')",
    ] {
        assert_eq!(evaluate(expression), Ok(true), "{expression}");
    }
}

#[test]
fn what_is_no_quantity_says_why() {
    assert_eq!(evaluate("quantity('10Mm').isInteger()"), Err("unable to parse quantity's suffix".to_owned()));
    assert_eq!(
        evaluate("quantity('1.5').asInteger() == 1"),
        Err("cannot convert value to integer".to_owned())
    );
}

#[test]
fn formats_judge_names_as_the_api_does() {
    for expression in [
        "format.dns1123Label().validate('my-label-name') == optional.none()",
        "format.dns1123LabelPrefix().validate('my-label-prefix-') == optional.none()",
        "format.dns1123Subdomain().validate('apiextensions.k8s.io') == optional.none()",
        "format.dns1123SubdomainPrefix().validate('mysubdomain.prefix.-') == optional.none()",
        "format.dns1035LabelPrefix().validate('my-label-prefix-') == optional.none()",
        "format.qualifiedName().validate('apiextensions.k8s.io/v1beta1') == optional.none()",
        "format.labelValue().validate('my-cool-label-Value') == optional.none()",
        "format.labelValue().validate('!').hasValue()",
        "format.named('dns1123Label').value().validate('contains a space').value()[0].startsWith(\
         'a lowercase RFC 1123 label must consist of lower case alphanumeric characters')",
    ] {
        assert_eq!(evaluate(expression), Ok(true), "{expression}");
    }
}
