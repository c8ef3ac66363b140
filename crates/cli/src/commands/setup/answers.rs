//! What is known of the line: from options, and from whoever sits at the terminal.

use super::policy::LINKS;
use anyhow::{Context, bail};
use narrows_link::Link;
use narrows_tc::number;
use narrows_units::Rate;
use std::io::{BufRead, Write};

/// What was said so far.
#[derive(Debug, Default)]
pub struct Answers {
    pub ports: Vec<String>,
    pub down: Option<String>,
    pub up: Option<String>,
    pub link: Option<String>,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Towards the Internet, towards the home.
    pub ports: [String; 2],
    pub down: Rate,
    pub up: Rate,
    pub link: String,
}

/// A question with one answer.
pub struct Question<'a> {
    pub text: &'a str,
    pub hint: &'a str,
    /// What an empty line means.
    pub preset: Option<&'a str>,
}

impl Question<'_> {
    /// Asks until `read` takes the answer.
    pub fn put<T>(
        &self,
        from: &mut impl BufRead,
        to: &mut impl Write,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        loop {
            let preset = self.preset.map(|preset| format!(" [{preset}]")).unwrap_or_default();
            write!(to, "{} ({}){preset}: ", self.text, self.hint)?;
            to.flush()?;
            let mut answer = String::new();
            if from.read_line(&mut answer).context("cannot read the answer")? == 0 {
                bail!("no answer: nothing was done");
            }
            match read(match answer.trim() {
                "" => self.preset.unwrap_or(""),
                said => said,
            }) {
                Ok(value) => return Ok(value),
                Err(why) => writeln!(to, "{why}")?,
            }
        }
    }
}

impl Answers {
    /// Asks for what is not known.
    pub fn ask(&mut self, from: &mut impl BufRead, to: &mut impl Write) -> anyhow::Result<()> {
        let ask = |text, hint| Question { text, hint, preset: None };
        if self.ports.is_empty() {
            let internet =
                ask("Which port leads to the Internet?", "an interface without an address");
            let internet = internet.put(from, to, port)?;
            let home =
                ask("Which port leads to the home?", "another one").put(from, to, |said| {
                    port(said).and_then(|name| match name == internet {
                        true => Err("the two ports are two interfaces".to_owned()),
                        false => Ok(name),
                    })
                })?;
            self.ports = vec![internet, home];
        }
        let hint = "a little below what the line carries, as 95mbit";
        let read = |said: &str| rate(said).map(|_| said.to_owned());
        if self.down.is_none() {
            self.down = Some(ask("Download rate?", hint).put(from, to, read)?);
        }
        if self.up.is_none() {
            self.up = Some(ask("Upload rate?", hint).put(from, to, read)?);
        }
        if self.link.is_none() {
            for (name, what) in LINKS {
                writeln!(to, "  {name:<14} {what}")?;
            }
            let question =
                Question { preset: Some("conservative"), ..ask("Which link?", "its name") };
            self.link = Some(question.put(from, to, |said| {
                let found = LINKS.iter().find(|(name, _)| *name == said);
                found.map(|(name, _)| (*name).to_owned()).ok_or_else(|| "none of these".to_owned())
            })?);
        }
        Ok(())
    }

    /// # Errors
    /// What is missing, as options.
    pub fn complete(self) -> anyhow::Result<Line> {
        let mut missing = Vec::new();
        if self.ports.is_empty() {
            missing.push("--ports A,B");
        }
        for (answer, option) in
            [(&self.down, "--down RATE"), (&self.up, "--up RATE"), (&self.link, "--link LINK")]
        {
            if answer.is_none() {
                missing.push(option);
            }
        }
        let (Some(down), Some(up), Some(link)) = (self.down, self.up, self.link) else {
            bail!("there is no terminal to ask at: give {}", missing.join(" "));
        };
        if !missing.is_empty() {
            bail!("there is no terminal to ask at: give {}", missing.join(" "));
        }
        let Ok([a, b]) = <[String; 2]>::try_from(self.ports) else {
            bail!("--ports takes two interfaces, as --ports eth1,eth2");
        };
        if a == b {
            bail!("the two ports are two interfaces, and {a} is one");
        }
        let said = |option: &str, text: &str| {
            rate(text).map_err(|why| anyhow::anyhow!("{option} {text}: {why}"))
        };
        Ok(Line { down: said("--down", &down)?, up: said("--up", &up)?, ports: [a, b], link })
    }
}

pub fn yes_or_no(said: &str) -> Result<bool, String> {
    match said.to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("yes or no".to_owned()),
    }
}

fn port(said: &str) -> Result<String, String> {
    Link::by_name(said).map(|link| link.name().to_owned()).map_err(|error| error.to_string())
}

fn rate(said: &str) -> Result<Rate, String> {
    /// Below this cake holds nothing that deserves the name of a line.
    const BITS_MIN: u64 = 64_000;
    let rate = number::rate(said).ok_or(number::RATE_HINT)?;
    if rate.bits_per_sec() < BITS_MIN {
        return Err("less than 64kbit: rates have a unit, as 95mbit".to_owned());
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn known() -> Answers {
        Answers {
            ports: vec!["a".into(), "b".into()],
            down: Some("95mbit".into()),
            up: Some("20mbit".into()),
            link: Some("docsis".into()),
        }
    }

    #[test]
    fn what_is_missing_is_named_as_options() {
        let complaint = Answers { up: None, link: None, ..known() }.complete().unwrap_err();
        assert!(complaint.to_string().ends_with("give --up RATE --link LINK"), "{complaint}");
        assert!(Answers { ports: vec!["a".into()], ..known() }.complete().is_err());
        assert!(Answers { ports: vec!["a".into(), "a".into()], ..known() }.complete().is_err());
        assert!(known().complete().is_ok());
    }

    #[test]
    fn a_rate_without_a_unit_is_questioned() {
        let complaint = Answers { down: Some("95".into()), ..known() }.complete().unwrap_err();
        assert!(complaint.to_string().contains("as 95mbit"), "{complaint}");
    }

    #[test]
    fn questions_are_put_again_until_they_are_answered() {
        let mut answers = Answers { ports: vec!["a".into(), "b".into()], ..Answers::default() };
        let mut said = Vec::new();
        let typed = "much\n95mbit\n20mbit\nmodem\n\n";
        answers.ask(&mut Cursor::new(typed), &mut said).unwrap();
        let line = answers.complete().unwrap();
        assert_eq!((line.down.bits_per_sec(), line.link.as_str()), (95_000_000, "conservative"));
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("a rate is a number and a unit") && said.contains("none of these"));
    }

    #[test]
    fn an_end_of_input_is_no_answer() {
        let mut answers = Answers { down: None, ..known() };
        let complaint = answers.ask(&mut Cursor::new(""), &mut Vec::new()).unwrap_err();
        assert!(complaint.to_string().contains("nothing was done"));
    }
}
