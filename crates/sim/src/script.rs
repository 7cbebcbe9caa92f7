//! What simulated containers run: a few commands of a shell, enough for probes, jobs and people who look around.

use std::{collections::BTreeMap, time::Duration};

/// What became of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What it writes, and when, counted from its start.
    pub output: Vec<(Duration, String)>,
    /// How long it takes, and with which code it exits; `None`: it runs for ever.
    pub ends: Option<(Duration, i32)>,
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

/// Steps of one line; more is not run.
const MOST_STEPS: usize = 1000;

/// Runs `words` as a container does that has them as its command. `None`: it is a program that is not known here.
pub fn run(words: &[String], around: &Surroundings) -> Option<Run> {
    let (program, rest) = words.split_first()?;
    let mut run = Run { output: Vec::new(), ends: Some((Duration::ZERO, 0)) };
    match base_name(program) {
        "sh" | "bash" | "ash" => match rest {
            [flag, script, ..] if flag.starts_with('-') && flag.ends_with('c') => {
                shell(script, around, &mut run)
            }
            // A shell that waits for somebody to type.
            [] => run.ends = None,
            _ => return None,
        },
        _ => {
            if !step(words, around, &mut run) {
                return None;
            }
        }
    }
    Some(run)
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Lines, `;`, `&&` and `||`; anything with loops or pipes runs for ever, as such scripts mostly do.
fn shell(script: &str, around: &Surroundings, run: &mut Run) {
    let words = ["while", "for", "until", "|", "exec"];
    let tokens = split(script);
    let is_beyond = |word: &String| words.contains(&word.as_str());
    if tokens.iter().any(|token| matches!(token, Token::Word(word) if is_beyond(word))) {
        run.ends = None;
        return;
    }
    let mut command: Vec<String> = Vec::new();
    let mut skip = false;
    let mut steps = 0;
    for token in tokens.into_iter().chain([Token::End]) {
        if let Token::Word(word) = token {
            command.push(expand(&word, around));
            continue;
        }
        steps += 1;
        if !command.is_empty() && !skip {
            let words = std::mem::take(&mut command);
            if words.first().is_some_and(|word| word == "exit") {
                let code = words.get(1).and_then(|code| code.parse().ok());
                let (after, last) = run.ends.unwrap_or_default();
                run.ends = Some((after, code.unwrap_or(last)));
                return;
            }
            if !step(&words, around, run) {
                let at = run.ends.map_or(Duration::ZERO, |(at, _)| at);
                let name = words.first().map_or("", String::as_str);
                run.output.push((at, format!("sh: {name}: not found\n")));
                run.ends = Some((at, 127));
            }
        }
        command.clear();
        let Some((_, code)) = run.ends else { return };
        skip = match token {
            Token::And => code != 0,
            Token::Or => code == 0,
            _ => false,
        };
        if steps >= MOST_STEPS {
            return;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    And,
    Or,
    End,
}

/// Stands for a dollar that is only that.
const PLAIN_DOLLAR: char = '\0';

fn split(script: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = script.chars().peekable();
    let mut quote: Option<char> = None;
    while let Some(character) = characters.next() {
        if let Some(end) = quote {
            match character {
                it if it == end => quote = None,
                '\\' if end == '"' => word.get_or_insert_default().extend(characters.next()),
                '$' if end == '\'' => word.get_or_insert_default().push(PLAIN_DOLLAR),
                it => word.get_or_insert_default().push(it),
            }
            continue;
        }
        let ends = match character {
            '\'' | '"' => {
                quote = Some(character);
                word.get_or_insert_default();
                continue;
            }
            '\\' => {
                word.get_or_insert_default().extend(characters.next());
                continue;
            }
            ';' | '\n' => Some(Token::End),
            '&' if characters.next_if_eq(&'&').is_some() => Some(Token::And),
            '|' if characters.next_if_eq(&'|').is_some() => Some(Token::Or),
            '|' => Some(Token::Word("|".into())),
            it if it.is_whitespace() => None,
            it => {
                word.get_or_insert_default().push(it);
                continue;
            }
        };
        tokens.extend(word.take().map(Token::Word));
        tokens.extend(ends);
    }
    tokens.extend(word.map(Token::Word));
    tokens
}

/// `$NAME` and `${NAME}`.
fn expand(word: &str, around: &Surroundings) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let braced = after.strip_prefix('{').and_then(|it| it.split_once('}'));
        let (name, remaining) = braced.unwrap_or_else(|| {
            let end =
                after.find(|it: char| !(it.is_ascii_alphanumeric() || it == '_')).unwrap_or(after.len());
            after.split_at(end)
        });
        match name {
            "" => text.push('$'),
            name => text.push_str(around.variables.get(name).map_or("", String::as_str)),
        }
        rest = remaining;
    }
    (text + rest).replace(PLAIN_DOLLAR, "$")
}

/// Adds one command to the run; `false` if it is not known.
fn step(words: &[String], around: &Surroundings, run: &mut Run) -> bool {
    let Some((program, arguments)) = words.split_first() else { return true };
    let Some((at, _)) = run.ends else { return true };
    let mut code = 0;
    let mut took = Duration::ZERO;
    let mut say = |text: String| run.output.push((at, text));
    match base_name(program) {
        "true" | ":" => {}
        "false" => code = 1,
        "echo" => {
            let (newline, arguments) = match arguments.split_first() {
                Some((flag, rest)) if flag == "-n" => ("", rest),
                _ => ("\n", arguments),
            };
            say(arguments.join(" ") + newline);
        }
        "sleep" => match arguments.first().map(String::as_str) {
            Some("infinity" | "inf") => {
                run.ends = None;
                return true;
            }
            given => took = given.and_then(duration).unwrap_or_default(),
        },
        "tail" if arguments.iter().any(|it| it.starts_with("-f")) => {
            run.ends = None;
            return true;
        }
        "hostname" => say(format!("{}\n", around.host)),
        "date" => say(format!("{}\n", around.date)),
        "whoami" => say("root\n".into()),
        "id" => say("uid=0(root) gid=0(root) groups=0(root)\n".into()),
        "pwd" => say("/\n".into()),
        "env" | "printenv" if arguments.is_empty() => {
            say(around.variables.iter().map(|(key, value)| format!("{key}={value}\n")).collect());
        }
        "printenv" => match arguments.first().and_then(|name| around.variables.get(name)) {
            Some(value) => say(format!("{value}\n")),
            None => code = 1,
        },
        "cat" => {
            for path in arguments {
                match around.files.get(path) {
                    Some(text) => say(text.clone()),
                    None => {
                        say(format!("cat: can't open '{path}': No such file or directory\n"));
                        code = 1;
                    }
                }
            }
        }
        "ls" => {
            let inside = arguments.first().map_or("/", String::as_str).trim_end_matches('/');
            let here = |path: &String| {
                path.strip_prefix(inside)?.strip_prefix('/')?.split('/').next().map(str::to_owned)
            };
            let names: std::collections::BTreeSet<String> = around.files.keys().filter_map(here).collect();
            say(names.into_iter().map(|name| name + "\n").collect());
        }
        _ => return false,
    }
    run.ends = Some((at.saturating_add(took), code));
    true
}

/// As `sleep` reads it, and annotations: seconds, or with `ms`, `s`, `m`, `h`.
pub fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|it: char| !(it.is_ascii_digit() || it == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * factor).ok()
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
        ];
        for (words, text, ends) in cases {
            assert_eq!(said(words), Some((text.to_string(), *ends)), "{words:?}");
        }
        assert_eq!(said(&["nginx"]), None);
        assert_eq!(said(&[]), None);
    }

    #[test]
    fn odd_scripts_come_to_an_end() {
        for script in ["'", "\"", "\\", "$", "${", "$$", ";;;;", "&& ||", "| |", "echo \u{1F600} $\u{1F600}"]
        {
            assert!(said(&["sh", "-c", script]).is_some(), "{script}");
        }
    }
}
