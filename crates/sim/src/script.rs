//! What simulated containers run: a small shell, enough for probes, jobs and people who look around.
//!
//! A script is run at once and to its end, to know what it would say and when. So a script that this shell does not
//! understand is not run at all: it has loops or pipes. Typed at a prompt, such a script runs for ever, and a program that
//! is not known is not found; a container that has one as its command does what containers do whose program is not known.

mod commands;
mod parse;

use std::{collections::BTreeMap, time::Duration};

pub use self::commands::duration;
use self::{
    commands::{Done, command},
    parse::{Command, Join, List, Part, Word, parse},
};

/// What became of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What it writes, and when, counted from its start.
    pub output: Vec<(Duration, String)>,
    /// How long it takes, and with which code it exits; `None`: it runs for ever.
    pub ends: Option<(Duration, i32)>,
    /// The files there are then, by path.
    pub files: BTreeMap<String, String>,
    /// Whether all of it was understood. If not, it is not known what it would do where its programs are.
    pub is_known: bool,
}

/// What commands can see.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    pub host: String,
    pub variables: BTreeMap<String, String>,
    /// By path.
    pub files: BTreeMap<String, String>,
    pub date: String,
}

/// Text that a script may handle in all: what it says, writes, reads and puts in place of variables.
const MOST_TEXT: usize = 1 << 20;

/// Runs `words` as a container does that has them as its command. `None`: it is a program that is not known here.
pub fn run(words: &[String], around: &Surroundings) -> Option<Run> {
    let (program, rest) = words.split_first()?;
    let mut shell = Shell::new(around);
    match (base_name(program), rest) {
        ("sh" | "bash" | "ash", [flags @ .., script])
            if flags.last().is_some_and(|flag| flag.starts_with('-') && flag.ends_with('c'))
                && flags.iter().all(|flag| flag.starts_with('-')) =>
        {
            match parse(script) {
                Some(list) => shell.run(&list),
                None => (shell.flow, shell.is_known) = (Flow::Forever, false),
            }
        }
        // A shell that waits for somebody to type.
        ("sh" | "bash" | "ash", []) => shell.flow = Flow::Forever,
        ("sh" | "bash" | "ash", _) => return None,
        _ => {
            let mut said = String::new();
            let done = command(&mut shell, base_name(program), rest, &mut said)?;
            shell.say(said);
            shell.take(done);
        }
    }
    Some(shell.end())
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Goes,
    Exits,
    Forever,
}

/// A script that is being run.
struct Shell<'a> {
    around: &'a Surroundings,
    variables: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    output: Vec<(Duration, String)>,
    at: Duration,
    /// Of the last command.
    code: i32,
    flow: Flow,
    /// How much it has handled.
    text: usize,
    /// Whether it has met nothing yet that it does not know.
    is_known: bool,
}

impl<'a> Shell<'a> {
    fn new(around: &'a Surroundings) -> Shell<'a> {
        Shell {
            around,
            variables: around.variables.clone(),
            files: around.files.clone(),
            output: Vec::new(),
            at: Duration::ZERO,
            code: 0,
            flow: Flow::Goes,
            text: 0,
            is_known: true,
        }
    }

    fn end(self) -> Run {
        let ends = (self.flow != Flow::Forever).then_some((self.at, self.code));
        Run { output: self.output, ends, files: self.files, is_known: self.is_known }
    }

    fn say(&mut self, said: String) {
        if !said.is_empty() && self.has_room(said.len()) {
            self.output.push((self.at, said));
        }
    }

    fn has_room(&mut self, text: usize) -> bool {
        self.text = self.text.saturating_add(text);
        self.text <= MOST_TEXT
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::With(code) => self.code = code,
            Done::After(took) => (self.at, self.code) = (self.at.saturating_add(took), 0),
            Done::Never => self.flow = Flow::Forever,
        }
    }

    fn run(&mut self, list: &List) {
        for (join, command) in list {
            let is_due = match join {
                Join::Then => true,
                Join::And => self.code == 0,
                Join::Or => self.code != 0,
            };
            if is_due {
                match command {
                    Command::Simple(words, target) => self.simple(words, target.as_ref()),
                    Command::If(branches, otherwise) => self.choose(branches, otherwise),
                }
            }
            if self.flow != Flow::Goes {
                return;
            }
        }
    }

    fn choose(&mut self, branches: &[(List, List)], otherwise: &List) {
        for (condition, then) in branches {
            self.run(condition);
            if self.flow != Flow::Goes {
                return;
            }
            if self.code == 0 {
                return self.run(then);
            }
        }
        self.code = 0;
        self.run(otherwise);
    }

    fn simple(&mut self, words: &[Word], target: Option<&parse::Target>) {
        let assigned = words.iter().map_while(assignment).count();
        for (name, word) in words.iter().map_while(assignment) {
            let value = self.expand(&word).join(" ");
            self.variables.insert(name, value);
            self.code = 0;
        }
        let words: Vec<String> = words.iter().skip(assigned).flat_map(|word| self.expand(word)).collect();
        let mut said = String::new();
        if let Some((name, arguments)) = words.split_first() {
            if name == "exit" {
                self.code = arguments.first().and_then(|code| code.parse().ok()).unwrap_or(self.code);
                self.flow = Flow::Exits;
                return;
            }
            match command(self, base_name(name), arguments, &mut said) {
                Some(done) => self.hear(said, target, done),
                None => {
                    self.is_known = false;
                    self.hear(format!("sh: {name}: not found\n"), None, Done::With(127));
                }
            }
        } else {
            self.hear(said, target, Done::With(self.code));
        }
    }

    /// What a command said, and how it ended.
    fn hear(&mut self, said: String, target: Option<&parse::Target>, done: Done) {
        let Some(target) = target else {
            self.say(said);
            return self.take(done);
        };
        let path = self.expand(&target.path).concat();
        if path != "/dev/null" && self.has_room(said.len()) {
            let file = self.files.entry(path).or_default();
            if !target.appends {
                file.clear();
            }
            file.push_str(&said);
        }
        self.take(done);
    }

    /// One word, unless it has no quotes: then as many as what it stands for has.
    fn expand(&mut self, word: &Word) -> Vec<String> {
        let mut text = String::new();
        let mut is_fixed = true;
        for part in &word.parts {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Variable(name) if name == "?" => text.push_str(&self.code.to_string()),
                Part::Variable(name) => {
                    is_fixed = false;
                    let value = self.variables.get(name).cloned().unwrap_or_default();
                    if self.has_room(value.len()) {
                        text.push_str(&value);
                    }
                }
                Part::Output(list) => {
                    is_fixed = false;
                    text.push_str(self.output_of(list).trim_end_matches('\n'));
                }
            }
        }
        match word.quoted || is_fixed {
            true => vec![text],
            false => text.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// What a list says in a shell of its own.
    fn output_of(&mut self, list: &List) -> String {
        let outer = (std::mem::take(&mut self.output), self.variables.clone());
        self.run(list);
        let (output, variables) = outer;
        self.variables = variables;
        let said = std::mem::replace(&mut self.output, output);
        if self.flow == Flow::Exits {
            self.flow = Flow::Goes;
        }
        said.into_iter().map(|(_, text)| text).collect()
    }
}

/// `NAME=value`.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Part::Text(first)) = word.parts.first() else { return None };
    let (name, value) = first.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
    if !is_name {
        return None;
    }
    let parts = std::iter::once(Part::Text(value.to_owned())).chain(word.parts.iter().skip(1).cloned());
    Some((name.to_owned(), Word { parts: parts.collect(), quoted: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            host: "web-1".into(),
            variables: [("WHO".to_owned(), "world".to_owned())].into(),
            files: [("/etc/hostname".to_owned(), "web-1\n".to_owned())].into(),
            date: "today".into(),
        }
    }

    fn said(words: &[&str]) -> Option<(String, Option<(u64, i32)>)> {
        let words: Vec<String> = words.iter().map(|it| it.to_string()).collect();
        let run = run(&words, &around())?;
        let text = run.output.iter().map(|(_, text)| text.as_str()).collect();
        Some((text, run.ends.map(|(after, code)| (after.as_secs(), code))))
    }

    #[test]
    fn commands_do_what_they_are_known_for() {
        type Case = (&'static [&'static str], &'static str, Option<(u64, i32)>);
        let cases: &[Case] = &[
            (&["echo", "hi", "there"], "hi there\n", Some((0, 0))),
            (&["sh", "-c", "echo hello $WHO; sleep 3 && exit 2"], "hello world\n", Some((3, 2))),
            (&["/bin/sh", "-ec", "false || echo 'no ${WHO}' \"$WHO\""], "no ${WHO} world\n", Some((0, 0))),
            (&["sh", "-c", "true && false"], "", Some((0, 1))),
            (&["sh", "-c", "true || exit 1"], "", Some((0, 0))),
            (&["sh", "-c", "nginx -t"], "sh: nginx: not found\n", Some((0, 127))),
            (&["sh", "-c", "while true; do echo x; sleep 1; done"], "", None),
            (&["sleep", "1.5m"], "", Some((90, 0))),
            (&["sleep", "infinity"], "", None),
            (&["tail", "-f", "/dev/null"], "", None),
            (&["cat", "/etc/hostname"], "web-1\n", Some((0, 0))),
            (&["cat", "/nope"], "cat: can't open '/nope': No such file or directory\n", Some((0, 1))),
            (&["ls", "/etc"], "hostname\n", Some((0, 0))),
            (&["printenv", "WHO"], "world\n", Some((0, 0))),
            (&["sh"], "", None),
            (&["sh", "-c", "if true\nthen\n  echo a\n\telse echo b; fi; exit 3"], "a\n", Some((0, 3))),
            (
                &["sh", "-c", "if false; then exit 1; elif [ a = b ]; then exit 2; else exit 4; fi"],
                "",
                Some((0, 4)),
            ),
            (&["sh", "-c", "if [ $(expr 7 % 2) -ne 0 ]; then exit 1; fi"], "", Some((0, 1))),
            (&["sh", "-c", "if [ $(expr 6 % 2) -ne 0 ]; then exit 1; fi"], "", Some((0, 0))),
            (&["sh", "-c", "if true; then if false; then echo a; else echo b; fi; fi"], "b\n", Some((0, 0))),
            (
                &["sh", "-c", "if [[ -r /x ]]; then exit 0; else touch /x; test -f /x && exit 42; fi"],
                "",
                Some((0, 42)),
            ),
            (&["sh", "-c", "touch /a; rm /a; [ -e /a ] || rm /a"], "", Some((0, 1))),
            (&["sh", "-c", "echo a > /x; echo b >>/x; cat /x 2>/dev/null"], "a\nb\n", Some((0, 0))),
            (&["sh", "-c", "echo lost >/dev/null 2>&1; echo kept # said"], "kept\n", Some((0, 0))),
            (&["sh", "-c", "A=1 B=\"$WHO $A\"; echo $B; false; echo $?"], "world 1\n1\n", Some((0, 0))),
            (&["sh", "-c", "echo $NONE \"$NONE\" x$(echo a; sleep 2; echo b)"], " xa b\n", Some((2, 0))),
            (&["sh", "-c", "[ -z $NONE ] && [ ! -n \"\" ] && [ 3 -ge 3 ]"], "", Some((0, 0))),
            (&["sh", "-c", "[ a -lt 3 ]"], "", Some((0, 2))),
            (&["sh", "-c", "[ a = a"], "", Some((0, 2))),
            (&["sh", "-c", "cat /etc/hostname | wc -l"], "", None),
            (&["sh", "-c", "sleep 5 & exit 1"], "", None),
            (&["sh", "-c", "exit $((1 + 1))"], "", None),
            (&["bash", "-e", "-c", "exit 5"], "", Some((0, 5))),
            (&["touch", "/x"], "", Some((0, 0))),
        ];
        for (words, text, ends) in cases {
            assert_eq!(said(words), Some((text.to_string(), *ends)), "{words:?}");
        }
        assert_eq!(said(&["nginx"]), None);
        assert_eq!(said(&[]), None);
    }

    #[test]
    fn odd_scripts_come_to_an_end() {
        let deep = ["if true; then ".repeat(5000), "$(".repeat(5000), "echo $(".repeat(9) + &")".repeat(9)];
        let odd = [
            "'",
            "\"",
            "\\",
            "$",
            "${",
            "$$",
            ";;;;",
            "&& ||",
            "| |",
            "echo \u{1F600} $\u{1F600}",
            "fi",
            "if",
            "if; then; fi",
            "then exit 1",
            "else",
            "> ",
            ">&",
            "echo a >",
            "$()",
            "[",
            "[[ ]]",
            "test !",
            "expr 1 / 0",
            "expr 9223372036854775807 + 1",
            "=",
            "a=$(exit 3)",
            "#",
        ];
        for script in odd.into_iter().chain(deep.iter().map(String::as_str)) {
            assert!(said(&["sh", "-c", script]).is_some(), "{script}");
        }
    }

    #[test]
    fn text_does_not_grow_without_bound() {
        let doubling = "A=aaaaaaaaaaaaaaaa; ".to_owned()
            + &"A=$A$A; ".repeat(64)
            + &"echo $A > /x; cat /x /x; ".repeat(64);
        let words = ["sh", "-c", &doubling].map(str::to_owned);
        let run = run(&words, &around()).expect("a shell");
        let said: usize = run.output.iter().map(|(_, text)| text.len()).sum();
        let written: usize = run.files.values().map(String::len).sum();
        assert!(said + written < 8 * MOST_TEXT, "{said} and {written}");
    }
}
