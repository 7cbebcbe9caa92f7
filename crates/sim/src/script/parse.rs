//! The text of a script, as commands.

use std::{iter::Peekable, str::Chars};

/// Commands, each with what joins it to the one before.
pub type List = Vec<(Join, Command)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Then,
    And,
    Or,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Words, and the file that what it says goes to.
    Simple(Vec<Word>, Option<Target>),
    /// Conditions with what follows from each, and what is left.
    If(Vec<(List, List)>, List),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: Word,
    pub appends: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub parts: Vec<Part>,
    /// Some of it was in quotes: it is one word, even an empty one, and no keyword.
    pub quoted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Variable(String),
    /// What the script in `$(…)` says.
    Output(List),
}

impl Word {
    fn push(&mut self, character: char) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(character),
            _ => self.parts.push(Part::Text(character.into())),
        }
    }

    /// The word if nothing in it depends on anything.
    pub fn plain(&self) -> Option<&str> {
        match (self.parts.as_slice(), self.quoted) {
            ([Part::Text(text)], false) => Some(text),
            _ => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    Join(Join),
    /// `>` or `>>`; of errors, which nobody reads here, or of the rest.
    Redirect {
        appends: bool,
        errors: bool,
    },
}

/// Words that begin what is not known here.
const BEYOND: [&str; 11] =
    ["while", "for", "until", "case", "select", "function", "exec", "{", "}", "!", "trap"];
/// How deep conditions and `$(…)` may be in one another.
const DEEPEST: usize = 16;

/// `None`: it says more than is understood here.
pub fn parse(script: &str) -> Option<List> {
    parse_at(script, 0)
}

fn parse_at(script: &str, depth: usize) -> Option<List> {
    let mut parser = Parser { tokens: tokens(script, depth)?.into_iter().peekable() };
    let list = parser.list(depth)?;
    // A keyword that ends something nobody began.
    parser.tokens.peek().is_none().then_some(list)
}

struct Parser {
    tokens: Peekable<std::vec::IntoIter<Token>>,
}

impl Parser {
    /// Up to the end, or a keyword that ends it.
    fn list(&mut self, depth: usize) -> Option<List> {
        if depth > DEEPEST {
            return None;
        }
        let mut list = List::new();
        let mut join = Join::Then;
        loop {
            match self.tokens.peek() {
                Some(Token::Join(next)) => {
                    // Empty lines join nothing.
                    if *next != Join::Then || join == Join::Then {
                        join = *next;
                    }
                    self.tokens.next();
                }
                Some(Token::Word(word)) if matches!(word.plain(), Some("then" | "else" | "elif" | "fi")) => {
                    return Some(list);
                }
                Some(_) => {
                    list.push((join, self.command(depth)?));
                    join = Join::Then;
                }
                None => return Some(list),
            }
        }
    }

    fn command(&mut self, depth: usize) -> Option<Command> {
        let mut words: Vec<Word> = Vec::new();
        let mut target = None;
        while let Some(token) = self.tokens.next_if(|token| !matches!(token, Token::Join(_))) {
            match token {
                Token::Word(word) if words.is_empty() && word.plain() == Some("if") => {
                    return self.condition(depth);
                }
                Token::Word(word)
                    if words.is_empty() && word.plain().is_some_and(|it| BEYOND.contains(&it)) =>
                {
                    return None;
                }
                Token::Word(word) => words.push(word),
                Token::Redirect { appends, errors } => {
                    let Some(Token::Word(path)) = self.tokens.next() else { return None };
                    if !errors {
                        target = Some(Target { path, appends });
                    }
                }
                Token::Join(_) => return None,
            }
        }
        Some(Command::Simple(words, target))
    }

    /// What follows an `if`.
    fn condition(&mut self, depth: usize) -> Option<Command> {
        let mut branches = Vec::new();
        loop {
            let condition = self.list(depth + 1)?;
            if self.keyword()? != "then" {
                return None;
            }
            branches.push((condition, self.list(depth + 1)?));
            match self.keyword()?.as_str() {
                "elif" => {}
                "else" => {
                    let otherwise = self.list(depth + 1)?;
                    return (self.keyword()? == "fi").then_some(Command::If(branches, otherwise));
                }
                "fi" => return Some(Command::If(branches, List::new())),
                _ => return None,
            }
        }
    }

    fn keyword(&mut self) -> Option<String> {
        match self.tokens.next()? {
            Token::Word(word) => word.plain().map(str::to_owned),
            _ => None,
        }
    }
}

/// `None`: something that is not known here, as pipes.
fn tokens(script: &str, depth: usize) -> Option<Vec<Token>> {
    let mut reader = Reader { characters: script.chars().peekable(), word: None, tokens: Vec::new(), depth };
    while let Some(character) = reader.characters.next() {
        reader.take(character)?;
    }
    reader.end_word();
    Some(reader.tokens)
}

struct Reader<'a> {
    characters: Peekable<Chars<'a>>,
    word: Option<Word>,
    tokens: Vec<Token>,
    depth: usize,
}

impl Reader<'_> {
    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        self.tokens.extend(self.word.take().map(Token::Word));
    }

    fn join(&mut self, join: Join) {
        self.end_word();
        self.tokens.push(Token::Join(join));
    }

    fn take(&mut self, character: char) -> Option<()> {
        match character {
            '\'' => {
                self.word().quoted = true;
                loop {
                    match self.characters.next()? {
                        '\'' => break,
                        other => self.word().push(other),
                    }
                }
            }
            '"' => self.quoted()?,
            '\\' => match self.characters.next()? {
                '\n' => {}
                other => {
                    self.word().quoted = true;
                    self.word().push(other);
                }
            },
            '$' => self.expansion()?,
            ';' | '\n' => self.join(Join::Then),
            '&' if self.characters.next_if_eq(&'&').is_some() => self.join(Join::And),
            '|' if self.characters.next_if_eq(&'|').is_some() => self.join(Join::Or),
            '>' => self.redirect()?,
            '|' | '&' | '<' | '(' | ')' | '`' => return None,
            '#' if self.word.is_none() => while self.characters.next_if(|it| *it != '\n').is_some() {},
            it if it.is_whitespace() => self.end_word(),
            it => self.word().push(it),
        }
        Some(())
    }

    /// Up to the next `"`.
    fn quoted(&mut self) -> Option<()> {
        self.word().quoted = true;
        loop {
            match self.characters.next()? {
                '"' => return Some(()),
                '$' => self.expansion()?,
                '`' => return None,
                '\\' => match self.characters.next()? {
                    '\n' => {}
                    it @ ('$' | '`' | '"' | '\\') => self.word().push(it),
                    it => {
                        self.word().push('\\');
                        self.word().push(it);
                    }
                },
                it => self.word().push(it),
            }
        }
    }

    /// What follows a dollar.
    fn expansion(&mut self) -> Option<()> {
        let is_of_name = |it: &char| it.is_ascii_alphanumeric() || *it == '_';
        let mut name = String::new();
        if self.characters.next_if_eq(&'{').is_some() {
            while let Some(character) = self.characters.next_if(is_of_name) {
                name.push(character);
            }
            self.characters.next_if_eq(&'}')?;
        } else if self.characters.next_if_eq(&'(').is_some() {
            let output = self.substitution()?;
            self.word().parts.push(Part::Output(output));
            return Some(());
        } else if self.characters.next_if_eq(&'?').is_some() {
            name.push('?');
        } else {
            while let Some(character) = self.characters.next_if(is_of_name) {
                name.push(character);
            }
        }
        match name.as_str() {
            "" => self.word().push('$'),
            _ => self.word().parts.push(Part::Variable(name)),
        }
        Some(())
    }

    /// What is in `$(…)`, up to the bracket that ends it.
    fn substitution(&mut self) -> Option<List> {
        if self.depth >= DEEPEST || self.characters.peek() == Some(&'(') {
            return None;
        }
        let mut inside = String::new();
        let mut open = 1_usize;
        let mut quote = None;
        loop {
            let character = self.characters.next()?;
            match (character, quote) {
                ('\'' | '"', None) => quote = Some(character),
                (it, Some(end)) if it == end => quote = None,
                ('(', None) => open += 1,
                (')', None) => open -= 1,
                _ => {}
            }
            if open == 0 {
                return parse_at(&inside, self.depth + 1);
            }
            inside.push(character);
        }
    }

    /// What follows a `>`.
    fn redirect(&mut self) -> Option<()> {
        let before = self.word.as_ref().and_then(Word::plain);
        let errors = before == Some("2");
        if errors || before == Some("1") {
            self.word = None;
        }
        self.end_word();
        let appends = self.characters.next_if_eq(&'>').is_some();
        if self.characters.next_if_eq(&'&').is_some() {
            // Both are one here.
            self.characters.next_if(|it| matches!(it, '1' | '2'))?;
            return Some(());
        }
        self.tokens.push(Token::Redirect { appends, errors });
        Some(())
    }
}
