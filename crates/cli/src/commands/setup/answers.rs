//! The facts about the line, from options and from questions at the terminal.

use super::interfaces::Interface;
use super::policy::{self, LINKS};
use anyhow::{Context, bail};
use narrows_forwarding::Forwarding;
use narrows_link::Link;
use narrows_tc::number;
use narrows_units::Rate;
use std::io::{BufRead, Write};

/// The answers so far.
#[derive(Debug, Default)]
pub struct Answers {
    pub ports: Vec<String>,
    /// If it is no wire, which is between `ports`.
    pub forwarding: Option<Forwarding>,
    pub down: Option<String>,
    pub up: Option<String>,
    pub link: Option<String>,
}

/// All answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its ports: the one towards the Internet, then those towards the home.
    pub forwarding: Forwarding,
    pub down: Rate,
    pub up: Rate,
    pub link: String,
}

impl Line {
    /// The name of the port towards the Internet.
    pub fn internet(&self) -> &String {
        &self.forwarding.names()[0]
    }

    /// The names of the ports towards the home, of which there is at least one.
    pub fn homes(&self) -> &[String] {
        &self.forwarding.names()[1..]
    }
}

/// A question with one answer.
pub struct Question<'a> {
    pub text: &'a str,
    pub hint: &'a str,
    /// The answer that an empty line stands for.
    pub preset: Option<&'a str>,
}

impl Question<'_> {
    /// Asks until `read` accepts the answer.
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
    /// Asks for missing answers. `interfaces` are the choices.
    pub fn ask(
        &mut self,
        interfaces: &[Interface],
        from: &mut impl BufRead,
        to: &mut impl Write,
    ) -> anyhow::Result<()> {
        let ask = |text, hint| Question { text, hint, preset: None };
        if self.ports.is_empty() && self.forwarding.is_none() {
            for Interface { name, what } in interfaces {
                let name = narrows_escape::line(name);
                writeln!(to, "  {name:<14} {what}")?;
            }
            let internet = ask("Which port leads to the Internet?", "its name");
            let internet = internet.put(from, to, port)?;
            let home = ask("Which port leads to the home?", "its name").put(from, to, |said| {
                port(said).and_then(|name| match name == internet {
                    true => {
                        Err(format!("{name} leads to the Internet already: name the other port"))
                    }
                    false => Ok(name),
                })
            })?;
            self.ports = vec![internet, home];
        }
        if self.link.is_none() {
            for (name, what) in LINKS {
                writeln!(to, "  {name:<14} {what}")?;
            }
            let question =
                Question { preset: Some("conservative"), ..ask("Which link?", "its name") };
            self.link = Some(question.put(from, to, |said| {
                // Which one a `dsl` is, its rate will tell.
                policy::link(said, Rate::from_bits_per_sec(0)).map(|_| said.to_owned()).ok_or_else(|| {
                    "type one of the names on the left, or dsl, vdsl, cable or fibre, or nothing \
                     if you do not know"
                        .to_owned()
                })
            })?);
        }
        let hint = policy::measured(self.link.as_deref().unwrap_or_default());
        let read = |said: &str| rate(said).map(|_| said.to_owned());
        if self.down.is_none() {
            self.down = Some(ask("Which download rate?", hint).put(from, to, read)?);
        }
        if self.up.is_none() {
            self.up = Some(ask("Which upload rate?", hint).put(from, to, read)?);
        }
        Ok(())
    }

    /// # Errors
    /// The missing answers, as options.
    pub fn complete(self) -> anyhow::Result<Line> {
        let mut missing = Vec::new();
        if self.ports.is_empty() && self.forwarding.is_none() {
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
        let forwarding = match (self.forwarding, &self.ports[..]) {
            (Some(forwarding), _) => forwarding,
            (None, [a, b]) if a == b => {
                bail!("{a} was given twice; name two interfaces");
            }
            (None, [a, b]) => Forwarding::wire(a, b)?,
            (None, _) => bail!("--ports takes two interfaces, as --ports eth1,eth2"),
        };
        let said = |option: &str, text: &str| {
            rate(text).map_err(|why| anyhow::anyhow!("{option} {text}: {why}"))
        };
        let (down, up) = (said("--down", &down)?, said("--up", &up)?);
        let found = policy::link(&link, down)
            .with_context(|| format!("--link {link}: no such line, see narrows setup --help"))?;
        Ok(Line { down, up, forwarding, link: found.to_owned() })
    }
}

pub fn yes_or_no(said: &str) -> Result<bool, String> {
    match said.to_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("type yes or no".to_owned()),
    }
}

fn port(said: &str) -> Result<String, String> {
    if said.is_empty() {
        return Err("type the name of an interface".to_owned());
    }
    Link::by_name(said).map(|link| link.name().to_owned()).map_err(|error| error.to_string())
}

/// A rate in tc's notation, or as providers write it: `95 Mbit/s`. `mbps` means megabytes to tc,
/// and is refused because nobody means that here.
fn rate(said: &str) -> Result<Rate, String> {
    /// Below this rate, cake is of no use.
    const BITS_MIN: u64 = 64_000;
    let plain: String = said.to_lowercase().split_whitespace().collect();
    let plain = plain.strip_suffix("/s").unwrap_or(&plain);
    if plain.ends_with("bps") {
        return Err(format!("tc counts bytes in {plain}: write 95mbit for 95 megabits a second"));
    }
    let rate =
        number::rate(plain).ok_or("a rate is a number with kbit, mbit or gbit, as 95mbit")?;
    if rate.bits_per_sec() < BITS_MIN {
        return Err(format!("{plain} is less than 64kbit: write the unit, as 95mbit"));
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
            forwarding: None,
            down: Some("95mbit".into()),
            up: Some("20mbit".into()),
            link: Some("docsis".into()),
        }
    }

    #[test]
    fn missing_answers_are_named_as_options() {
        let complaint = Answers { up: None, link: None, ..known() }.complete().unwrap_err();
        assert!(complaint.to_string().ends_with("give --up RATE --link LINK"), "{complaint}");
        assert!(Answers { ports: vec!["a".into()], ..known() }.complete().is_err());
        assert!(Answers { ports: vec!["a".into(), "a".into()], ..known() }.complete().is_err());
        assert!(known().complete().is_ok());
    }

    #[test]
    fn what_is_no_wire_needs_no_ports_beside_its_own() {
        let router = ["a", "b", "c"].map(str::to_owned);
        let forwarding = Some(Forwarding::router(&router).unwrap());
        let line = Answers { ports: Vec::new(), forwarding, ..known() }.complete().unwrap();
        assert_eq!((line.internet().as_str(), line.homes()), ("a", &router[1..]));
    }

    #[test]
    fn a_rate_without_a_unit_is_questioned() {
        let complaint = Answers { down: Some("95".into()), ..known() }.complete().unwrap_err();
        assert!(complaint.to_string().contains("as 95mbit"), "{complaint}");
    }

    #[test]
    fn a_rate_may_be_written_as_providers_write_it_but_not_in_bytes() {
        for said in ["95mbit", "95 Mbit/s", "95000 kbit", "95Mbit"] {
            assert_eq!(rate(said).map(Rate::bits_per_sec), Ok(95_000_000), "{said}");
        }
        assert!(rate("95 Mbps").unwrap_err().contains("bytes"));
    }

    #[test]
    fn the_interfaces_to_choose_from_are_shown() {
        let eth7 = Interface { name: "eth7".into(), what: "has a link".into() };
        let mut said = Vec::new();
        let typed = &mut Cursor::new("\n");
        assert!(Answers::default().ask(&[eth7], typed, &mut said).is_err(), "the input ends");
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("eth7           has a link\n"), "{said}");
        assert!(said.contains("type the name of an interface"), "{said}");
    }

    #[test]
    fn questions_are_put_again_until_they_are_answered() {
        let mut answers = Answers { ports: vec!["a".into(), "b".into()], ..Answers::default() };
        let mut said = Vec::new();
        let typed = "modem\n\nmuch\n95mbit\n20mbit\n";
        answers.ask(&[], &mut Cursor::new(typed), &mut said).unwrap();
        let line = answers.complete().unwrap();
        assert_eq!((line.down.bits_per_sec(), line.link.as_str()), (95_000_000, "conservative"));
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("a rate is a number with") && said.contains("type one of the names"));
    }

    #[test]
    fn a_dsl_line_is_asked_for_the_modem_s_rate_and_its_kind_is_found_by_it() {
        let mut answers = Answers { ports: vec!["a".into(), "b".into()], ..Answers::default() };
        let mut said = Vec::new();
        answers.ask(&[], &mut Cursor::new("dsl\n50mbit\n10mbit\n"), &mut said).unwrap();
        assert!(String::from_utf8(said).unwrap().contains("modem synchronises"));
        assert_eq!(answers.complete().unwrap().link, "pppoe-ptm");
    }

    #[test]
    fn an_end_of_input_is_no_answer() {
        let mut answers = Answers { down: None, ..known() };
        let complaint = answers.ask(&[], &mut Cursor::new(""), &mut Vec::new()).unwrap_err();
        assert!(complaint.to_string().contains("nothing was done"));
    }
}
