//! What is wrong with a text, in the words of cel-go's generated parser.

use super::{MAX_DEPTH, Parse, Parser, Stop};
use crate::{
    lex::{Kind, Token},
    source::Location,
};

/// What may stand where an operand is expected, in the order of the generated parser; `also` are symbols that may stand
/// there beside.
fn operand_set(also: &[&str]) -> String {
    const SYMBOLS: &[(&str, bool)] = &[
        ("[", true),
        ("]", false),
        ("{", true),
        ("}", false),
        ("(", true),
        (")", false),
        (".", true),
        (",", false),
        ("-", true),
        ("!", true),
        ("?", false),
    ];
    let symbols: String = SYMBOLS
        .iter()
        .filter(|(symbol, begins)| *begins || also.contains(symbol))
        .map(|(symbol, _)| format!("'{symbol}', "))
        .collect();
    format!("{{{symbols}'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}")
}

impl Parser<'_> {
    pub(super) fn stop(&mut self, location: Location, message: impl Into<String>) -> Stop {
        self.issues.report(self.source, location, message);
        Stop
    }

    pub(super) fn stop_at(&mut self, offset: u32, message: impl Into<String>) -> Stop {
        self.stop(self.source.location(offset), message)
    }

    /// The next token is not the symbol that must come. If what follows fits as if it were there, it is said to be
    /// missing.
    pub(super) fn syntax_error(&mut self, symbol: &str, others: &str, could_be_missing: bool) -> Stop {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let message = match (others, could_be_missing && token.kind == Kind::End) {
            ("", true) => format!("missing '{symbol}' at '{text}'"),
            ("", false) => {
                let word = if self.peek_at(1).kind == kind_of(symbol) { "extraneous" } else { "mismatched" };
                format!("{word} input '{text}' expecting '{symbol}'")
            }
            _ => {
                let fits = self.peek_at(1).kind == kind_of(symbol) && token.kind != Kind::End;
                let word = if fits { "extraneous" } else { "mismatched" };
                format!("{word} input '{text}' expecting {{'{symbol}', {others}}}")
            }
        };
        self.stop_at(token.start, format!("Syntax error: {message}"))
    }

    /// An operand must begin here, or one of the other symbols stand. If an operand begins right behind what stands
    /// here instead, that is reported and left out.
    pub(super) fn expect_operand(&mut self, also: &[&str]) -> Parse<()> {
        let token = self.peek();
        let fits = matches!(token.kind, Kind::Symbol(symbol) if also.contains(&symbol));
        if fits || begins_operand(token.kind) {
            return Ok(());
        }
        let text = escape_whitespace(&self.text(token));
        let skips = token.kind != Kind::End && begins_operand(self.peek_at(1).kind);
        let word = if skips { "extraneous" } else { "mismatched" };
        let expected = operand_set(also);
        let stop =
            self.stop_at(token.start, format!("Syntax error: {word} input '{text}' expecting {expected}"));
        if !skips {
            return Err(stop);
        }
        self.advance();
        Ok(())
    }

    /// `!` before `-` or `-` before `!`: the grammar has no such operand.
    pub(super) fn mixed_signs(&mut self, token: Token) -> Stop {
        let before =
            self.tokens.get(self.next.wrapping_sub(1)).map_or(String::new(), |before| self.text(*before));
        let text = self.text(token);
        let message = match text.as_str() {
            "!" => format!("Syntax error: no viable alternative at input '{before}{text}'"),
            _ => {
                let next = self.peek_at(1);
                let next = if next.kind == Kind::End { String::new() } else { self.text(next) };
                return self.stop_at(
                    self.peek_at(1).start,
                    format!("Syntax error: no viable alternative at input '{text}{next}'"),
                );
            }
        };
        self.stop_at(token.start, message)
    }

    /// A dot that no name follows.
    pub(super) fn lone_dot(&mut self, dot: Token) -> Stop {
        let next = self.peek_at(1);
        let text = if next.kind == Kind::End { String::new() } else { self.text(next) };
        let message = format!("Syntax error: no viable alternative at input '{}{text}'", self.text(dot));
        self.stop_at(next.start, message)
    }

    pub(super) fn unexpected_after_operand(&mut self) -> Stop {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let following = self.peek_at(1).kind;
        let word = if following == Kind::End { "extraneous" } else { "mismatched" };
        self.stop_at(token.start, format!("Syntax error: {word} input '{text}' expecting <EOF>"))
    }

    pub(super) fn unsupported_escape(&mut self, token: Token) {
        self.issues.report(self.source, self.source.location(token.start), "unsupported syntax: '`'");
    }

    pub(super) fn too_deep(&mut self) -> Stop {
        self.stop(Location::NONE, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
    }

    pub(super) fn raise(&mut self, height: usize) -> Parse<usize> {
        if height + 1 > MAX_DEPTH {
            return Err(self.stop(Location::NONE, "max recursion depth exceeded"));
        }
        Ok(height + 1)
    }
    /// An operand must follow `!` or `-`; cel-go's parser has words of its own for when none does.
    pub(super) fn expect_operand_of(&mut self, symbol: &str, first: Token) -> Parse<()> {
        let token = self.peek();
        if begins_operand(token.kind) {
            return Ok(());
        }
        if symbol == "!" && token.kind == Kind::End {
            let message = format!("Syntax error: extraneous input '<EOF>' expecting {}", operand_set(&[]));
            return Err(self.stop_at(token.start, message));
        }
        if symbol == "-" {
            let end = self.tokens[self.next.min(self.tokens.len() - 1)].end;
            let read: String = self.characters[first.start as usize..end as usize].iter().collect();
            let message =
                format!("Syntax error: no viable alternative at input '{}'", escape_whitespace(&read));
            return Err(self.stop_at(token.start, message));
        }
        Ok(())
    }
}

fn kind_of(symbol: &str) -> Kind {
    match symbol {
        ")" => Kind::Symbol(")"),
        "]" => Kind::Symbol("]"),
        "}" => Kind::Symbol("}"),
        _ => Kind::Symbol(":"),
    }
}

pub(super) fn begins_operand(kind: Kind) -> bool {
    match kind {
        Kind::Symbol(symbol) => matches!(symbol, "[" | "{" | "(" | "." | "-" | "!"),
        Kind::In | Kind::EscapedIdentifier | Kind::End => false,
        _ => true,
    }
}

pub(super) fn escape_whitespace(text: &str) -> String {
    text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
