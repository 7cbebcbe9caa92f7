//! The text of an expression, places in it, and what is wrong there, worded and drawn as cel-go does.

use std::fmt;

/// A place in an expression: a line counted from 1 and a column counted from 0, in code points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    pub line: i32,
    pub column: i32,
}

impl Location {
    /// Where there is none: what concerns the expression as a whole.
    pub const NONE: Location = Location { line: -1, column: -1 };
}

/// Holds the text of an expression and where its lines begin.
#[derive(Debug, Clone)]
pub struct Source {
    text: String,
    /// For each line, the offset of its first code point.
    line_starts: Vec<u32>,
}

/// Longer lines are not repeated below an error.
const MAX_SNIPPET: usize = 16384;

impl Source {
    pub fn new(text: &str) -> Self {
        let mut line_starts = vec![0];
        for (offset, character) in text.chars().enumerate() {
            if character == '\n' {
                line_starts.push(offset as u32 + 1);
            }
        }
        Source { text: text.to_owned(), line_starts }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a code point.
    pub fn location(&self, offset: u32) -> Location {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        Location { line: line as i32, column: (offset - start) as i32 }
    }

    fn line(&self, number: i32) -> Option<&str> {
        self.text.split('\n').nth(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    fn draw(&self, location: Location, message: &str) -> String {
        let mut drawn = format!("ERROR: <input>:{}:{}: {message}", location.line, location.column + 1);
        let Some(line) = self.line(location.line).filter(|line| line.len() <= MAX_SNIPPET) else {
            return drawn;
        };
        let line = line.replace('\t', " ");
        drawn.push_str("\n | ");
        drawn.push_str(&line);
        drawn.push_str("\n | ");
        let mut characters = line.chars();
        for character in characters.by_ref().take(location.column.max(0) as usize) {
            drawn.push(if character.is_ascii() { '.' } else { '\u{ff0e}' });
        }
        let wide = characters.next().is_some_and(|character| !character.is_ascii());
        drawn.push(if wide { '\u{ff3e}' } else { '^' });
        drawn
    }
}

/// One thing that is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Counted from 1; -1 where the issue has no place.
    pub line: i32,
    /// Counted from 1; 0 where the issue has no place.
    pub column: i32,
    pub message: String,
    /// Message, place and the line with a mark below it.
    pub rendered: String,
}

/// More issues than these are counted, not listed.
const MAX_ISSUES: usize = 100;

/// Everything that is wrong with an expression. `Display` is what Kubernetes puts into its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issues {
    pub issues: Vec<Issue>,
    more: usize,
}

impl Issues {
    pub fn is_empty(&self) -> bool {
        self.issues.is_empty()
    }

    pub(crate) fn report(&mut self, source: &Source, location: Location, message: impl Into<String>) {
        if self.issues.len() == MAX_ISSUES {
            self.more += 1;
            return;
        }
        let message = message.into();
        let rendered = source.draw(location, &message);
        self.issues.push(Issue { line: location.line, column: location.column + 1, message, rendered });
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Issue> = self.issues.iter().collect();
        sorted.sort_by_key(|issue| (issue.line, issue.column));
        for (index, issue) in sorted.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&issue.rendered)?;
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}
