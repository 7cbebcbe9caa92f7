//! The JSONPath of printer columns: `.spec.ports[0].port`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! It is upstream's dialect, without `range` and templates. A path that finds nothing, or that does not fit the
//! object, finds nothing: a cell stays empty.

use serde_json::Value;

/// How many values one path may find.
const MAX_FOUND: usize = 10_000;
/// How deep filters and unions may stand in one another.
const MAX_NESTING: usize = 8;

/// A path, ready to be followed.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Slice(Slice),
    Filter(Filter),
    /// Each of the paths, one after the other.
    Union(Vec<JsonPath>),
    /// A value and everything in it.
    Recursive,
    Literal(Value),
    /// A word that means nothing here: the path never finds anything.
    Word,
}

/// `[start:end:step]`; `[2]` ends after its one item.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    single: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: JsonPath,
    /// Without it, `left` only has to find something.
    comparison: Option<(Operator, JsonPath)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

/// The path does not fit the object.
struct Misfit;

type Found<'a> = Result<Vec<&'a Value>, Misfit>;

impl JsonPath {
    /// Reads a path, with or without braces around it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        Self::parse_within(inner, MAX_NESTING)
    }

    fn parse_within(text: &str, nesting: usize) -> Result<Self, String> {
        let mut parser = Parser { rest: text, steps: Vec::new(), nesting };
        while !parser.rest.is_empty() {
            parser.step()?;
        }
        Ok(Self { steps: parser.steps })
    }

    /// All that the path finds in an object.
    pub fn find<'a>(&'a self, object: &'a Value) -> Vec<&'a Value> {
        self.follow(vec![object]).unwrap_or_default()
    }

    /// The first that the path finds, as columns show it.
    pub fn first<'a>(&'a self, object: &'a Value) -> Option<&'a Value> {
        self.find(object).into_iter().next()
    }

    fn follow<'a>(&'a self, from: Vec<&'a Value>) -> Found<'a> {
        self.steps.iter().try_fold(from, |values, step| {
            let found = step.follow(values)?;
            if found.len() > MAX_FOUND { Err(Misfit) } else { Ok(found) }
        })
    }
}

impl Step {
    fn follow<'a>(&'a self, values: Vec<&'a Value>) -> Found<'a> {
        let some = || values.iter().copied().filter(|value| !value.is_null());
        match self {
            Step::Field(name) => Ok(some().filter_map(|value| value.as_object()?.get(name)).collect()),
            Step::Wildcard => Ok(some().flat_map(children).collect()),
            Step::Slice(slice) => {
                let mut found = Vec::new();
                for value in some() {
                    found.extend(slice.of(value.as_array().ok_or(Misfit)?)?);
                }
                Ok(found)
            }
            Step::Filter(filter) => {
                let mut found = Vec::new();
                for value in values {
                    for item in value.as_array().ok_or(Misfit)? {
                        if filter.passes(item)? {
                            found.push(item);
                        }
                    }
                }
                Ok(found)
            }
            Step::Union(paths) => {
                let mut found = Vec::new();
                for path in paths {
                    found.extend(path.follow(values.clone())?);
                }
                Ok(found)
            }
            Step::Recursive => {
                let mut found = Vec::new();
                for value in some() {
                    descend(value, &mut found);
                }
                Ok(found)
            }
            Step::Literal(value @ Value::String(_)) => Ok(vec![value]),
            Step::Literal(value) => Ok(vec![value; values.len()]),
            Step::Word => Err(Misfit),
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Containers that hold something, outer before inner; upstream counts texts among them.
fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let is_text = value.as_str().is_some_and(|text| !text.is_empty());
    if found.len() > MAX_FOUND || !is_text && children(value).next().is_none() {
        return;
    }
    found.push(value);
    children(value).for_each(|child| descend(child, found));
}

impl Slice {
    fn of<'a>(&self, items: &'a [Value]) -> Result<Vec<&'a Value>, Misfit> {
        let len = items.len() as i64;
        let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = if self.single { start.saturating_add(1) } else { from_end(self.end.unwrap_or(len)) };
        if start == end {
            return Ok(Vec::new());
        }
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(Misfit)?;
        let (start, end) =
            (usize::try_from(start).map_err(|_| Misfit)?, usize::try_from(end).map_err(|_| Misfit)?);
        if start >= items.len() {
            return Err(Misfit);
        }
        Ok(items.get(start..end).ok_or(Misfit)?.iter().step_by(step).collect())
    }
}

impl Filter {
    fn passes(&self, item: &Value) -> Result<bool, Misfit> {
        let left = self.left.follow(vec![item]);
        let Some((operator, right)) = &self.comparison else {
            return Ok(left.is_ok_and(|found| !found.is_empty()));
        };
        let right = right.follow(vec![item])?;
        match (left?.as_slice(), right.as_slice()) {
            ([], _) | (_, []) => Ok(false),
            ([left], [right]) => operator.holds(left, right),
            _ => Err(Misfit),
        }
    }
}

impl Operator {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            ">=" => Operator::GreaterOrEqual,
            ">" => Operator::Greater,
            _ => return Err(format!("unrecognized filter operator {text}")),
        })
    }

    /// Only values of one type compare.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Misfit> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                (None, None) => left.as_f64().partial_cmp(&right.as_f64()).ok_or(Misfit)?,
                _ => return Err(Misfit),
            },
            (Value::Bool(left), Value::Bool(right))
                if matches!(self, Operator::Equal | Operator::NotEqual) =>
            {
                left.cmp(right)
            }
            _ => return Err(Misfit),
        };
        Ok(match self {
            Operator::Less => order == Less,
            Operator::LessOrEqual => order != Greater,
            Operator::Equal => order == Equal,
            Operator::NotEqual => order != Equal,
            Operator::GreaterOrEqual => order != Less,
            Operator::Greater => order == Greater,
        })
    }
}

struct Parser<'t> {
    rest: &'t str,
    steps: Vec<Step>,
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn step(&mut self) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            self.rest = rest;
            return self.filter();
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            if self.steps.last() == Some(&Step::Recursive) {
                return Err("invalid multiple recursive descent".to_owned());
            }
            self.steps.push(Step::Recursive);
            self.rest = rest;
            if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                self.field();
            }
            return Ok(());
        }
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        let after = &self.rest[first.len_utf8()..];
        match first {
            ' ' | '@' | '$' => self.rest = after,
            '.' => {
                self.rest = after;
                self.field();
            }
            '[' => {
                let (inside, rest) = after.split_once(']').ok_or("unterminated array")?;
                self.rest = rest;
                self.array(inside)?;
            }
            '"' | '\'' => self.quoted(first, after)?,
            '+' | '-' | '0'..='9' => self.number()?,
            c if c == '_' || c.is_alphanumeric() => self.word(),
            c => return Err(format!("unrecognized character in action: {}", crate::gotext::code_point(c))),
        }
        Ok(())
    }

    /// Up to something that cannot be in a name unless a backslash is before it.
    fn name(&mut self) -> String {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                    self.rest = &self.rest[at..];
                    return name;
                }
                c => name.push(c),
            }
        }
        self.rest = "";
        name
    }

    fn field(&mut self) {
        let name = self.name();
        self.steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name) });
    }

    fn word(&mut self) {
        let step = match self.name().as_str() {
            "true" => Step::Literal(true.into()),
            "false" => Step::Literal(false.into()),
            _ => Step::Word,
        };
        self.steps.push(step);
    }

    fn number(&mut self) -> Result<(), String> {
        let signed = usize::from(self.rest.starts_with(['+', '-']));
        let len =
            self.rest[signed..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count()
                + signed;
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        let number = match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Value::from(whole),
            (_, Ok(float)) => Value::from(float),
            _ => return Err(format!("cannot parse number {text}")),
        };
        self.steps.push(Step::Literal(number));
        Ok(())
    }

    fn quoted(&mut self, quote: char, after: &'t str) -> Result<(), String> {
        let mut text = String::new();
        let mut chars = after.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                '\n' => break,
                c if c == quote => {
                    self.rest = &after[at + 1..];
                    self.steps.push(Step::Literal(text.into()));
                    return Ok(());
                }
                c => text.push(c),
            }
        }
        Err("unterminated quoted string".to_owned())
    }

    /// What stands between brackets: a key in quotes, an index, a slice, or several of these.
    fn array(&mut self, inside: &str) -> Result<(), String> {
        let nesting = self.nesting.checked_sub(1).ok_or("too deep")?;
        if inside.contains(',') {
            let paths = inside
                .split(',')
                .map(|part| JsonPath::parse_within(&format!("[{}]", part.trim_matches(' ')), nesting));
            self.steps.push(Step::Union(paths.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(key) = key.filter(|key| !key.contains('\'')) {
            // As upstream has it, dots separate here too.
            self.steps.extend(JsonPath::parse_within(&format!(".{key}"), nesting)?.steps);
            return Ok(());
        }
        self.steps.push(Step::Slice(parse_slice(inside)?));
        Ok(())
    }

    fn filter(&mut self) -> Result<(), String> {
        let nesting = self.nesting.checked_sub(1).ok_or("too deep")?;
        let end = filter_end(self.rest).ok_or("unterminated filter")?;
        let (text, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        self.rest = rest.strip_prefix(']').ok_or("unclosed array expect ]")?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let operator_at = text.find(is_operator).filter(|at| *at > 0);
        let filter = match operator_at {
            None => Filter { left: JsonPath::parse_within(text, nesting)?, comparison: None },
            Some(at) => {
                let (left, rest) = text.split_at(at);
                let operator_len = rest.find(|c| !is_operator(c)).ok_or("unterminated filter")?;
                let (operator, right) = rest.split_at(operator_len);
                let right = JsonPath::parse_within(right, nesting)?;
                Filter {
                    left: JsonPath::parse_within(left, nesting)?,
                    comparison: Some((Operator::parse(operator)?, right)),
                }
            }
        };
        self.steps.push(Step::Filter(filter));
        Ok(())
    }
}

/// Where the parenthesis closes that is not inside quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ')') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open && !escaped => quote = None,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn parse_slice(text: &str) -> Result<Slice, String> {
    if text == "*" {
        return Ok(Slice::default());
    }
    let bad = || format!("invalid array index {text}");
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return Err(bad());
    }
    let number = |part: Option<&&str>| match part.copied() {
        None | Some("") => Ok(None),
        Some(part) if part.starts_with('+') => Err(bad()),
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| bad()),
    };
    Ok(Slice {
        start: number(parts.first())?,
        end: number(parts.get(1))?,
        step: number(parts.get(2))?,
        single: parts.len() == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"name": "a", "annotations": {"x.io/y": "z"}},
            "spec": {"ports": [{"port": 80, "name": "web"}, {"port": 443}], "replicas": 3, "ratio": 0.5, "on": true, "none": null},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Odd)", "status": "False"}]},
        })
    }

    fn found(path: &str) -> Value {
        let object = object();
        let path = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Value::Array(path.find(&object).into_iter().cloned().collect())
    }

    #[test]
    fn paths_find_values() {
        for (path, values) in [
            (".metadata.name", json!(["a"])),
            ("{.metadata.name}", json!(["a"])),
            ("$.metadata['name']", json!(["a"])),
            (r".metadata.annotations.x\.io/y", json!(["z"])),
            (r".metadata.annotations['x\.io/y']", json!(["z"])),
            (".metadata['annotations.x']", json!([])),
            (".spec.ports[0].port", json!([80])),
            (".spec.ports[-1].port", json!([443])),
            (".spec.ports[*].port", json!([80, 443])),
            (".spec.ports[:].port", json!([80, 443])),
            (".spec.ports[0:1].port", json!([80])),
            (".spec.ports[0,1].port", json!([80, 443])),
            (".spec.ports[5].port", json!([])),
            (".spec.*.x", json!([])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (r".status.conditions[?(@.type=='Ready')].status", json!(["True"])),
            (r#".status.conditions[?(@.type=="Odd)")].status"#, json!(["False"])),
            (r#".status.conditions[?(@.type!="Ready")].status"#, json!(["False"])),
            (".spec.ports[?(@.port>80)].port", json!([443])),
            (".spec.ports[?(@.name)].port", json!([80])),
            (".spec.ports[?(@.port==80.0)].port", json!([])),
            (".spec..port", json!([80, 443])),
            (".spec.none.x", json!([])),
            (".absent.x.y", json!([])),
            ("metadata.name", json!([])),
        ] {
            assert_eq!(found(path), values, "{path}");
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        for path in
            [".a[", ".a[x]", ".a[?(@.b", ".a[?(@.b==1)", ".a[?(@.b=1)]", "\"ab", "....", ".a[1:2:3:4]", "#"]
        {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        let nested = format!(".a{}{}", "[?(@.a".repeat(20), ")]".repeat(20));
        assert!(JsonPath::parse(&nested).is_err());
    }
}
