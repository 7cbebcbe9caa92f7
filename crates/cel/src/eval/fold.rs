//! Comprehensions.

use super::{Evaluator, IDENT_COST, Slot, go_type};
use crate::{
    error::{Eval, EvalError},
    library,
    plan::{Fold, Node, Step},
    value::{List, Made, Map, Value},
};

impl<'p, 'a> Evaluator<'p, 'a, '_> {
    pub(super) fn fold(&mut self, fold: &'p Fold) -> Eval<Value<'a>> {
        let range = self.eval(&fold.range)?;
        let mark = self.locals.len();
        debug_assert_eq!(mark, fold.slot);
        let elements = elements(range, fold.two_variables)?;
        let outcome = match &fold.step {
            Step::Any(step) => self.fold_any(fold, step, elements),
            Step::Append { filter, list } => self.fold_list(fold, filter.as_ref(), list, elements),
            Step::Insert { filter, entry } => self.fold_map(fold, filter.as_ref(), entry, elements),
        };
        self.locals.truncate(mark);
        outcome
    }

    fn bind(&mut self, fold: &Fold, element: Element<'a>) {
        self.locals.truncate(fold.slot + 1);
        self.locals.push(Slot::Value(element.first));
        if fold.two_variables {
            self.locals.push(Slot::Value(element.second));
        }
    }

    fn fold_any(&mut self, fold: &'p Fold, step: &'p Node, elements: Elements<'a>) -> Eval<Value<'a>> {
        self.locals.push(Slot::Lazy(&fold.init));
        for element in elements {
            self.bind(fold, element);
            match self.eval(&fold.condition) {
                Err(error) if error.is_fatal() => return Err(error),
                Ok(Value::Bool(false)) => break,
                _ => {}
            }
            let accumulated = self.eval(step);
            if matches!(&accumulated, Err(error) if error.is_fatal()) {
                return accumulated;
            }
            self.locals[fold.slot] = Slot::Value(accumulated);
        }
        self.locals.truncate(fold.slot + 1);
        self.eval(&fold.result)
    }

    /// Whether the filter lets an element pass; what it fails with becomes the accumulator.
    fn passes(&mut self, filter: Option<&'p Node>) -> Eval<Eval<bool>> {
        let Some(filter) = filter else { return Ok(Ok(true)) };
        match self.eval(filter) {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => Ok(Err(error)),
            Ok(Value::Bool(value)) => Ok(Ok(value)),
            Ok(_) => Ok(Err(EvalError::no_such_overload())),
        }
    }

    fn fold_list(
        &mut self,
        fold: &'p Fold,
        filter: Option<&'p Node>,
        list: &'p Node,
        elements: Elements<'a>,
    ) -> Eval<Value<'a>> {
        self.locals.push(Slot::InPlace);
        let mut accumulated: Eval<Vec<Value<'a>>> = Ok(Vec::new());
        for element in elements {
            self.bind(fold, element);
            match self.passes(filter)? {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    accumulated = Err(error);
                    continue;
                }
            }
            // The accumulator is a step, and so is the addition.
            self.budget.charge(IDENT_COST)?;
            let appended = self.eval(list);
            let appended = self.done(appended, 1);
            match appended {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    if accumulated.is_ok() {
                        accumulated = Err(error);
                    }
                }
                Ok(Value::List(appended)) => {
                    if let Ok(values) = &mut accumulated {
                        for value in appended.iter() {
                            values.push(value?);
                        }
                    }
                }
                Ok(_) => accumulated = Err(EvalError::no_such_overload()),
            }
        }
        self.locals.truncate(fold.slot);
        self.locals.push(Slot::Value(accumulated.map(Value::list)));
        self.eval(&fold.result)
    }

    fn fold_map(
        &mut self,
        fold: &'p Fold,
        filter: Option<&'p Node>,
        entry: &'p [Node],
        elements: Elements<'a>,
    ) -> Eval<Value<'a>> {
        self.locals.push(Slot::InPlace);
        let mut accumulated: Eval<Made<'a>> = Ok(Made::default());
        for element in elements {
            self.bind(fold, element);
            match self.passes(filter)? {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    accumulated = Err(error);
                    continue;
                }
            }
            self.budget.charge(IDENT_COST)?;
            let inserted = self.insert(&mut accumulated, entry);
            match inserted {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => accumulated = Err(error),
                Ok(()) => {}
            }
        }
        self.locals.truncate(fold.slot);
        self.locals.push(Slot::Value(accumulated.map(|made| Value::Map(Map::made(made)))));
        self.eval(&fold.result)
    }

    fn insert(&mut self, accumulated: &mut Eval<Made<'a>>, entry: &'p [Node]) -> Eval<()> {
        // With a key and a value evaluation stops at what fails first; a map is evaluated in any case.
        if let (Err(error), [_, _]) = (&*accumulated, entry) {
            return Err(error.clone());
        }
        let mut parts = Vec::with_capacity(entry.len());
        for (index, part) in entry.iter().enumerate() {
            match self.eval(part) {
                Ok(value) => parts.push(value),
                Err(error) if error.is_fatal() || index + 1 < entry.len() => return Err(error),
                Err(error) => return self.done(Err(error), 1),
            }
        }
        let outcome = match (accumulated, parts.as_slice()) {
            (Err(error), _) => Err(error.clone()),
            (Ok(made), [key, value]) => library::insert_into(made, key, value),
            (Ok(made), [Value::Map(map)]) => map.entries().and_then(|entries| {
                entries.iter().try_for_each(|(key, value)| library::insert_into(made, key, value))
            }),
            _ => Err(EvalError::no_such_overload()),
        };
        self.done(outcome, 1)
    }
}

/// What the variables of a comprehension are bound to.
struct Element<'a> {
    first: Eval<Value<'a>>,
    second: Eval<Value<'a>>,
}

type Elements<'a> = Box<dyn Iterator<Item = Element<'a>> + 'a>;

fn elements(range: Value<'_>, two: bool) -> Eval<Elements<'_>> {
    match range {
        Value::List(list) => Ok(list_elements(list, two)),
        Value::Map(map) => {
            let keys = map.keys();
            Ok(Box::new(keys.into_iter().map(move |key| {
                let second = match two {
                    true => {
                        map.find(&key).and_then(|value| value.ok_or_else(|| EvalError::no_such_key(&key)))
                    }
                    false => Ok(Value::Null),
                };
                Element { first: Ok(key), second }
            })))
        }
        other if two => {
            let message = format!("unsupported comprehension range type: {}", go_type(&other));
            Err(EvalError::invalid(message))
        }
        other => Err(EvalError::invalid(format!("got '{}', expected iterable type", go_type(&other)))),
    }
}

fn list_elements(list: List<'_>, two: bool) -> Elements<'_> {
    let mut index = 0;
    Box::new(std::iter::from_fn(move || {
        let element = list.get(index)?;
        let position = Value::Int(index as i64);
        index += 1;
        Some(match two {
            true => Element { first: Ok(position), second: element },
            false => Element { first: element, second: Ok(Value::Null) },
        })
    }))
}
