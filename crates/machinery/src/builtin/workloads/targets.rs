//! The column of an autoscaler's metrics: what is measured and what is wanted, `cpu: 12%/80%`.

use serde_json::{Value, json};

use super::at;

const UNKNOWN: &str = "<unknown>";
const SHOWN: usize = 2;

pub fn targets(object: &Value, _: i64) -> Value {
    let list = |pointer| object.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (specs, statuses) = (list("/spec/metrics"), list("/status/currentMetrics"));
    if specs.is_empty() {
        return json!("<none>");
    }
    let texts = specs.iter().enumerate().map(|(index, spec)| target(spec, statuses.get(index)));
    let shown = texts.take(SHOWN).collect::<Vec<_>>().join(", ");
    json!(match specs.len() {
        more if more > SHOWN => format!("{shown} + {} more...", more - SHOWN),
        _ => shown,
    })
}

fn target(spec: &Value, status: Option<&Value>) -> String {
    let (member, kind) = match at(spec, "/type") {
        "External" => ("external", Kind::Valued),
        "Object" => ("object", Kind::Valued),
        "Pods" => ("pods", Kind::Averaged),
        "Resource" => ("resource", Kind::OfResource),
        "ContainerResource" => ("containerResource", Kind::OfResource),
        _ => return "<unknown type>".to_owned(),
    };
    let source = &spec[member];
    let status = status.and_then(|status| status.get(member)).filter(|status| !status.is_null());
    let wanted = |name: &str| quantity(&source["target"][name]);
    let measured = |name: &str| status.and_then(|status| quantity(&status["current"][name]));
    match kind {
        Kind::Averaged => {
            format!("{}/{}", or(measured("averageValue"), UNKNOWN), or(wanted("averageValue"), ""))
        }
        Kind::Valued => match wanted("averageValue") {
            Some(average) => format!("{}/{average} (avg)", or(measured("averageValue"), UNKNOWN)),
            None => format!("{}/{}", or(measured("value"), UNKNOWN), or(wanted("value"), "")),
        },
        Kind::OfResource => {
            let name = at(source, "/name");
            if let Some(average) = wanted("averageValue") {
                return format!("{name}: {}/{average}", or(measured("averageValue"), UNKNOWN));
            }
            let measured = status.and_then(|status| percent(&status["current"]["averageUtilization"]));
            let wanted = percent(&source["target"]["averageUtilization"]);
            format!("{name}: {}/{}", or(measured, UNKNOWN), or(wanted, "<auto>"))
        }
    }
}

/// What a metric's target can be.
enum Kind {
    Averaged,
    Valued,
    OfResource,
}

fn or(text: Option<String>, otherwise: &str) -> String {
    text.unwrap_or_else(|| otherwise.to_owned())
}

fn quantity(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn percent(value: &Value) -> Option<String> {
    value.as_i64().map(|number| format!("{number}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_show_measured_and_wanted_values() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
        let cpu_now =
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}});
        let rate = json!({"type": "Pods", "pods": {"metric": {"name": "rate"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
        let queue = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}});
        for (specs, statuses, text) in [
            (json!([]), json!(null), "<none>"),
            (json!([cpu]), json!(null), "cpu: <unknown>/80%"),
            (json!([cpu]), json!([cpu_now]), "cpu: 12%/80%"),
            (json!([rate, queue]), json!(null), "<unknown>/10, <unknown>/5 (avg)"),
            (
                json!([cpu, rate, queue, {"type": "X"}]),
                json!([cpu_now]),
                "cpu: 12%/80%, <unknown>/10 + 2 more...",
            ),
            (json!([{"type": "X"}]), json!([]), "<unknown type>"),
        ] {
            let object = json!({"spec": {"metrics": specs}, "status": {"currentMetrics": statuses}});
            assert_eq!(targets(&object, 0), text);
        }
    }
}
