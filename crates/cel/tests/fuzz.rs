//! Expressions from anywhere: none panics, none runs for long, none takes much memory, whatever it says.
//!
//! Valid expressions are mutated from a seed that is printed when a case fails. `HANSE_FUZZ_SECONDS` sets how long they
//! are tried (2 by default), `HANSE_FUZZ_SEED` repeats a run.

// A test may look at the clock; what it tests may not.
#![allow(clippy::disallowed_methods)]

mod support;

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use support::{Question, answer, declare, env, generate, random::Random, schema};

/// Pieces of expressions that mean something.
const PIECES: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "&&",
    "||",
    "==",
    " in ",
    "'",
    "\"",
    "r'",
    "b'",
    "\\",
    "\\u",
    "'''",
    "self",
    "oldSelf.",
    ".map(x, ",
    ".all(x, ",
    ".exists(i, v, ",
    ".filter(x, ",
    "has(",
    ".?",
    "[?",
    "optional.of(",
    ".optMap(x, ",
    "lists.range(99999999999)",
    ".sortBy(x, ",
    "dyn(",
    "1",
    "0x",
    "1e999",
    "9223372036854775807",
    ".replace('', self.text)",
    ".format([",
    "'%.999999999f'",
    ".matches('",
    "(a*)*",
    "{1000}",
    ".split('')",
    ".join(self.text)",
    "\n",
    "é",
    "\u{1f600}",
    "`",
    "//",
    "true",
    "null",
    "type(",
    "__result__",
    "@result",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn mutate(random: &mut Random, text: &str) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..random.below(5) {
        let at = random.below(characters.len() + 1);
        match random.below(4) {
            0 if at < characters.len() => drop(characters.remove(at)),
            1 => characters.truncate(at),
            2 => {
                let start = random.below(characters.len() + 1);
                let end = start + random.below(characters.len() - start + 1);
                let piece = characters[start..end].to_vec();
                characters.splice(at..at, piece);
            }
            _ => drop(characters.splice(at..at, random.pick(PIECES).chars())),
        }
    }
    characters.truncate(4096);
    characters.into_iter().collect()
}

#[test]
fn no_expression_panics_or_runs_away() {
    let seed = number("HANSE_FUZZ_SEED", 0x5eed);
    let until = Instant::now() + Duration::from_secs(number("HANSE_FUZZ_SECONDS", 2));
    let decl = declare(&schema(), "selfType");
    let env = env(&decl);
    let written: Vec<&str> = include_str!("corpus.txt").lines().collect();
    let mut random = Random(seed);
    let mut cases = 0;
    while Instant::now() < until {
        let base = match random.below(2) {
            0 => (*random.pick(&written)).to_owned(),
            _ => generate::expression(&mut random, generate::Of::Any, 3),
        };
        let mut question = Question::new(&mutate(&mut random, &base));
        question.limit = 20_000;
        let started = Instant::now();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| answer(&env, &decl, &question)));
        let expr = &question.expr;
        assert!(outcome.is_ok(), "HANSE_FUZZ_SEED={seed}, case {cases}: panics on {expr:?}");
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(20),
            "HANSE_FUZZ_SEED={seed}, case {cases}: {took:?} for {expr:?}"
        );
        cases += 1;
    }
    println!("{cases} expressions");
}

/// Expressions that are small and want much. Each must end soon, and none may overflow the stack of a test's thread.
#[test]
fn expressions_that_want_too_much_end_soon() {
    let repeat = |piece: &str, count: usize| piece.repeat(count);
    let chain = |start: &str, link: &str, count: usize| format!("{start}{}", repeat(link, count));
    let cases = [
        // Depth.
        format!("{}1{}", repeat("(", 50_000), repeat(")", 50_000)),
        format!("{}1{}", repeat("(", 240), repeat(")", 240)),
        format!("{}1{}", repeat("[", 240), repeat("]", 240)),
        chain("1", " + 1", 10_000),
        chain("1", " + 1", 240),
        chain("self", ".a", 240),
        chain("[1]", "[0]", 10_000),
        repeat("!", 50_000) + "true",
        repeat("-", 50_000) + "1",
        repeat("-!", 45_000) + "1",
        repeat("! -", 30_000) + "1",
        repeat("* 1 ", 20_000),
        repeat("[? ", 30_000),
        repeat("{", 90_000),
        repeat("a.", 40_000),
        format!("{}1", repeat("true ? 1 : ", 20_000)),
        format!("{}1", repeat("true ? 1 : ", 240)),
        chain("true", " && true", 10_000),
        format!("{}x{}", repeat("[1].map(x, ", 200), repeat(")", 200)),
        // The tree.
        chain("optional.of(1)", ".optMap(x, x + 1)", 100),
        chain("[1]", ".sortBy(x, x)", 80),
        // Types whose parts are shared.
        chain("[1]", ".map(x, {x: x})", 80),
        chain("[1]", ".map(x, [x, x])", 80),
        // Values whose parts are shared.
        format!("{0} == {0}", chain("[1]", ".map(x, dyn([x, x]))", 40)),
        format!("{}.flatten(100)", chain("[1]", ".map(x, dyn([x, x]))", 40)),
        format!("'%s'.format([{}])", chain("[1]", ".map(x, dyn([x, x]))", 40)),
        format!("string({})", chain("[1]", ".map(x, dyn([x, x]))", 40)),
        format!("{{'a': 1}}[{}]", chain("dyn([1])", ".map(x, dyn([x, x]))", 40)),
        format!("{}.distinct()", chain("[1, 2, 3]", ".map(x, dyn([x, x]))", 40)),
        format!("{}.isSorted()", chain("dyn([1])", ".map(x, dyn([x, x]))", 40)),
        // Long strings.
        chain("self.text", ".replace('', self.text)", 20),
        chain("self.text", ".replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')", 40),
        format!("lists.range(9000).map(x, {}).join()", chain("self.text", " + self.text", 30)),
        "'%.2000000000f'.format([1.0])".to_owned(),
        "'%.999999999999e'.format([1.0])".to_owned(),
        // Long lists.
        "lists.range(9223372036854775807)".to_owned(),
        "lists.range(900000).map(x, lists.range(900000))".to_owned(),
        "lists.range(400000).map(x, x).map(x, [x]).flatten().distinct().size()".to_owned(),
        // Regular expressions.
        "self.text.matches('((a{100}){100}){100}')".to_owned(),
        "self.text.matches('(((((((((a*)*)*)*)*)*)*)*)*)*$')".to_owned(),
        format!("self.text.matches('{}')", repeat("(", 9000)),
        format!("self.text.matches('{}{}')", repeat("(", 900), repeat(")", 900)),
        "self.text.matches('[[:alpha:]&&--~~[a]')".to_owned(),
        r"self.text.matches('\\pL{1000}{1000}')".to_owned(),
    ];
    let decl = declare(&schema(), "selfType");
    let env = env(&decl);
    for expr in cases {
        let started = Instant::now();
        let mut question = Question::new(&expr);
        question.limit = 20_000;
        let answer = answer(&env, &decl, &question);
        let (took, shown) = (started.elapsed(), expr.chars().take(80).collect::<String>());
        assert!(took < Duration::from_secs(60), "{took:?} for {shown}: {answer:?}");
        println!("{took:?} {shown} -> {}", format!("{answer:?}").chars().take(160).collect::<String>());
    }
}
