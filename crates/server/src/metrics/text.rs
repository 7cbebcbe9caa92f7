//! The text format that Prometheus and kube-apiserver speak.
//!
//! The library writes OpenMetrics, which names a counter without the `_total` that its samples have, and calls a counter
//! that has none unknown.

/// As kube-apiserver says it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// From OpenMetrics.
pub fn from_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The help of a metric comes before its type, which decides about its name.
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some((name, words)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = Some((name, words));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "unknown" => ("", "counter"),
                other => ("", other),
            };
            if let Some((_, words)) = help.take().filter(|(about, _)| *about == name) {
                push(&mut out, &["# HELP ", name, suffix, " ", words]);
            }
            push(&mut out, &["# TYPE ", name, suffix, " ", kind]);
        } else if let Some((start, end)) = line.split_once(".0\"").filter(|(start, _)| is_bound(start)) {
            // Dashboards ask for bounds as Go writes them.
            push(&mut out, &[start, "\"", end]);
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            push(&mut out, &[line]);
        }
    }
    out
}

/// Whether a line up to here ends with the bound of a bucket.
fn is_bound(start: &str) -> bool {
    let value = start.rsplit_once("le=\"").map_or("", |(_, value)| value);
    start.contains("_bucket{") && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

fn push(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
    out.push('\n');
}

/// Adds one metric that is read when somebody asks.
pub fn metric<'a>(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl IntoIterator<Item = (&'a [(&'a str, &'a str)], f64)>,
) {
    push(out, &["# HELP ", name, " ", help, "."]);
    push(out, &["# TYPE ", name, " ", kind]);
    for (labels, value) in samples {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        push(out, &[name, &labels, " ", &value.to_string()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_name_of_their_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{c=\"d\"} 1\n\
                    # HELP e Other.\n# TYPE e unknown\ne 2\n# HELP f_seconds Time.\n# TYPE f_seconds histogram\n\
                    # UNIT f_seconds seconds\nf_seconds_sum 0.5\n\
                    f_seconds_bucket{le=\"1.0\",v=\"1.0\"} 1\nf_seconds_bucket{le=\"1.05\"} 1\n\
                    f_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let expected = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{c=\"d\"} 1\n\
                        # HELP e Other.\n# TYPE e counter\ne 2\n# HELP f_seconds Time.\n# TYPE f_seconds histogram\n\
                        f_seconds_sum 0.5\nf_seconds_bucket{le=\"1\",v=\"1.0\"} 1\n\
                        f_seconds_bucket{le=\"1.05\"} 1\nf_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(from_open_metrics(open), expected);
    }
}
