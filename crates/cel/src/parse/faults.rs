//! What is wrong with a text, in the words of cel-go's generated parser.

use super::{MAX_DEPTH, Parse, Parser, Stop};
use crate::{
    lex::{Kind, Token},
    source::Location,
};

/// What may begin an operand, as the generated parser of cel-go lists it.
const OPERAND: &str = "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                       BYTES, IDENTIFIER";
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

    /// No operand begins here. If one begins right behind, the token is reported and left out.
    pub(super) fn unexpected_operand(&mut self, also: &str) -> Parse<()> {
        let token = self.peek();
        let text = escape_whitespace(&self.text(token));
        let expected = match also {
            "" => OPERAND.to_owned(),
            "'?', " => OPERAND.replacen("'!', ", "'!', '?', ", 1),
            also => OPERAND.replacen("'(', ", also, 1),
        };
        let skips = token.kind != Kind::End && begins_operand(self.peek_at(1).kind);
        let word = if skips { "extraneous" } else { "mismatched" };
        let stop = self
            .stop_at(token.start, format!("Syntax error: {word} input '{text}' expecting {{{expected}}}"));
        if !skips {
            return Err(stop);
        }
        self.advance();
        Ok(())
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
            let message = format!("Syntax error: extraneous input '<EOF>' expecting {{{OPERAND}}}");
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
