//! Compares Narrows with the real `tc` and kernel, line by line.
//!
//! Each scene starts from an untouched device. Every line goes to both. Afterwards both must have
//! answered with the same exit code and the kernel's message, if it had one, and show the same tree
//! in every output format. Needs root, for a network namespace of its own that is always deleted
//! afterwards; without root the test says that it was skipped.

mod grammar;
mod kernel;
mod scenes;

use kernel::{Answer, Kernel};
use narrows_policy::{Policy, PortFacts};
use narrows_tc::{Host, execute};

/// How many filters with arbitrary numbers are compared.
const ARBITRARY: usize = 200;

/// Normalizes intended differences: automatic handles (the kernel's counter is global), the order
/// of qdiscs below the root (the kernel's is that of a hash table), the empty queues of an `mq`
/// (the kernel puts a `pfifo_fast` there), and Narrows' own words.
struct Normal {
    automatic: Vec<String>,
}

impl Normal {
    fn text(&mut self, shown: &str) -> String {
        let shown = without_our_words(shown);
        let mut blocks: Vec<String> = Vec::new();
        for line in shown.split_inclusive('\n') {
            let begins = line.starts_with("qdisc ") || line.starts_with("class ");
            if begins || blocks.is_empty() {
                blocks.push(String::new());
            }
            blocks.last_mut().unwrap().push_str(line);
        }
        let is_queue = |block: &str| {
            block.starts_with("qdisc noqueue 0: ") && block.contains(" parent ")
                || block.starts_with("qdisc pfifo_fast")
        };
        blocks.retain(|block| !is_queue(block));
        let mut blocks: Vec<_> = blocks.iter().map(|block| self.handles(block)).collect();
        blocks.sort();
        blocks.concat()
    }

    fn json(&mut self, shown: &str) -> Vec<String> {
        let shown = self.handles(shown);
        let parsed: serde_json::Value = serde_json::from_str(&shown).expect(&shown);
        let mut qdiscs: Vec<_> = parsed
            .as_array()
            .unwrap()
            .iter()
            .filter(|qdisc| qdisc["kind"] != "pfifo_fast")
            .filter(|qdisc| qdisc["kind"] != "noqueue" || qdisc["parent"].is_null())
            .cloned()
            .map(|mut qdisc| {
                if let Some(options) = qdisc["options"].as_object_mut() {
                    options.remove("coordination");
                }
                qdisc.to_string()
            })
            .collect();
        qdiscs.sort();
        qdiscs
    }

    /// Numbers automatic handles in the order in which they first appear.
    fn handles(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(colon) = rest.find(':') {
            let (before, behind) = rest.split_at(colon);
            let start = before.rfind(|c: char| !c.is_ascii_hexdigit()).map_or(0, |at| at + 1);
            let digits = &before[start..];
            out.push_str(&before[..start]);
            if digits.len() == 4 && digits.starts_with('8') {
                let known = self.automatic.iter().position(|known| known == digits);
                let number = known.unwrap_or_else(|| {
                    self.automatic.push(digits.to_owned());
                    self.automatic.len() - 1
                });
                out.push_str(&format!("auto{number}"));
            } else {
                out.push_str(digits);
            }
            out.push(':');
            rest = &behind[1..];
        }
        out + rest
    }
}

/// Narrows, with a port like the kernel's.
#[derive(Default)]
struct Ours {
    policy: Policy,
}

impl Host for Ours {
    fn devices(&self) -> Vec<String> {
        vec!["nrwv1".to_owned(), "nrwv0".to_owned()]
    }

    fn port(&self, dev: &str) -> Option<PortFacts> {
        let facts = PortFacts { queues: Some(4), ..PortFacts::ETHERNET };
        self.devices().contains(&dev.to_owned()).then_some(facts)
    }

    fn policy(&self) -> Policy {
        self.policy.clone()
    }

    fn apply(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        Ok(())
    }
}

impl Ours {
    fn has_filters(&self) -> bool {
        let port = self.policy.port("nrwv0");
        port.filter_places().iter().any(|place| !port.filters(*place).is_empty())
    }

    fn run(&mut self, line: &str) -> Answer {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let outcome = execute(&args, self);
        Answer { code: outcome.code, stdout: outcome.stdout, stderr: outcome.stderr }
    }
}

/// Both sides, with the differences so far.
struct Comparison {
    kernel: Kernel,
    ours: Ours,
    kernel_names: Normal,
    our_names: Normal,
    lines: usize,
    failures: Vec<String>,
}

impl Comparison {
    fn new(kernel: Kernel) -> Self {
        let (kernel_names, our_names) =
            (Normal { automatic: Vec::new() }, Normal { automatic: Vec::new() });
        let (ours, failures) = (Ours::default(), Vec::new());
        Self { kernel, ours, kernel_names, our_names, lines: 0, failures }
    }

    fn start_over(&mut self) {
        self.kernel.run("qdisc del dev nrwv0 root");
        self.ours = Ours::default();
        self.kernel_names.automatic.clear();
        self.our_names.automatic.clear();
    }

    /// Runs the line on both, and compares the answers.
    fn line(&mut self, line: &str) -> (Answer, Answer) {
        self.lines += 1;
        let before = self.ours.policy.clone();
        let theirs = self.kernel.run(line);
        let ours = self.ours.run(line);
        if ours.code != 0 && self.ours.policy != before {
            self.failures.push(format!("tc {line}\n  failed but changed the policy"));
        }
        (theirs, ours)
    }

    fn compare_answers(&mut self, line: &str) {
        let (theirs, ours) = self.line(line);
        if theirs.code != ours.code {
            self.failures.push(format!(
                "tc {line}\n  kernel {}: {}\n  ours {}: {}",
                theirs.code, theirs.stderr, ours.code, ours.stderr
            ));
        }
        // tc's addition for filters has no information.
        let sentence = theirs.stderr.trim();
        let sentence = sentence.lines().next().unwrap_or_default();
        if sentence.starts_with("Error: ") && theirs.code == 2 && !ours.stderr.starts_with(sentence)
        {
            self.failures.push(format!("tc {line}\n  kernel: {sentence}\n  ours: {}", ours.stderr));
        }
    }

    /// Compares one output format byte for byte, if order and own words do not matter.
    fn compare_show(&mut self, show: &str, after: &str) {
        let (theirs, ours) = (self.kernel.run(show).stdout, self.ours.run(show).stdout);
        if theirs != without_our_words(&ours) {
            self.failures
                .push(format!("after tc {after}\ntc {show}\n--- kernel\n{theirs}--- ours\n{ours}"));
        }
    }

    fn compare_shows(&mut self, after: &str) {
        if after.starts_with("filter") {
            for place in ["", " parent 1:", " parent 1: pref 3", " protocol ip"] {
                self.compare_show(&format!("filter show dev nrwv0{place}"), after);
            }
        }
        for options in ["", "-s ", "-d ", "-s -d "] {
            for filter in ["dev nrwv0", "", "dev nrwv0 invisible", "dev nrwv0 root"] {
                // In the kernel, a filter whose child was deleted drops everything; here it has its
                // default FIFO again, which only this filter shows.
                if filter.ends_with("invisible") && after.starts_with("qdisc del") {
                    continue;
                }
                let show = format!("{options}qdisc show {filter}");
                let (theirs, ours) = (self.kernel.run(&show), self.ours.run(&show));
                let theirs = self.kernel_names.text(&theirs.stdout);
                let ours = self.our_names.text(&ours.stdout);
                if theirs != ours {
                    self.failures.push(format!(
                        "after tc {after}\ntc {show}\n--- kernel\n{theirs}--- ours\n{ours}"
                    ));
                }
            }
        }
        for show in
            ["-iec -d qdisc show dev nrwv0", "class show dev nrwv0", "-s class list dev nrwv0"]
        {
            let (theirs, ours) = (self.kernel.run(show), self.ours.run(show));
            let theirs = self.kernel_names.text(&theirs.stdout);
            let ours = self.our_names.text(&ours.stdout);
            if theirs != ours {
                self.failures.push(format!(
                    "after tc {after}\ntc {show}\n--- kernel\n{theirs}--- ours\n{ours}"
                ));
            }
        }
        for options in ["-j", "-j -s", "-j -d", "-j -p", "-j -p -s -d"] {
            let show = format!("{options} qdisc show dev nrwv0");
            let (theirs, ours) = (self.kernel.run(&show).stdout, self.ours.run(&show).stdout);
            let same = self.kernel_names.json(&theirs) == self.our_names.json(&ours);
            // A single qdisc has no order, so the layout must be equal byte for byte.
            let alone = theirs.matches("\"kind\"").count() == 1;
            let left = self.kernel_names.handles(&theirs);
            let right = self.our_names.handles(&without_our_words(&ours));
            if !same || (alone && left != right) {
                self.failures.push(format!(
                    "after tc {after}\ntc {show}\n--- kernel\n{left}--- ours\n{right}"
                ));
            }
        }
    }
}

/// The output of `show` without Narrows' own words.
fn without_our_words(shown: &str) -> String {
    shown
        .replace("coordination fair ", "")
        .replace(",\"coordination\":\"fair\"", "")
        .replace(",\n            \"coordination\": \"fair\"", "")
}

#[test]
fn we_answer_and_show_what_tc_and_the_kernel_do() {
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no comparison with the real tc: {why}"),
    };
    let mut both = Comparison::new(kernel);
    for scene in scenes::SCENES {
        both.start_over();
        for line in *scene {
            both.compare_answers(line);
            both.compare_shows(line);
        }
    }
    for parameters in scenes::TBF {
        both.start_over();
        let line = format!("qdisc replace dev nrwv0 root handle 1: tbf {parameters}");
        both.compare_answers(&line);
        both.compare_shows(&line);
    }
    for parameters in scenes::arbitrary_tbf(ARBITRARY) {
        let line = format!("qdisc replace dev nrwv0 root handle 1: tbf {parameters}");
        both.compare_answers(&line);
        for show in ["-d qdisc show dev nrwv0", "-j qdisc show dev nrwv0"] {
            both.compare_show(show, &line);
        }
    }
    both.start_over();
    for (line, word) in scenes::BAD {
        both.compare_answers(line);
        let (_, ours) = both.line(line);
        if ours.code == 0 || !ours.stderr.contains(word) {
            both.failures.push(format!("tc {line}\n  does not name {word}: {}", ours.stderr));
        }
        both.start_over();
    }
    for line in scenes::ABBREVIATED {
        both.compare_answers(line);
        both.start_over();
    }
    for (line, their_code, our_code) in scenes::DIFFERENT {
        both.start_over();
        let (theirs, ours) = both.line(line);
        if (theirs.code, ours.code) != (*their_code, *our_code) {
            both.failures.push(format!(
                "tc {line}\n  expected {their_code} and {our_code}, got {} and {}",
                theirs.code, ours.code
            ));
        }
    }
    eprintln!("{} lines compared with {}", both.lines, both.kernel.version());
    assert!(both.failures.is_empty(), "{}", both.failures.join("\n\n"));
}

#[test]
fn batches_go_as_far_and_say_as_much_as_tc_s() {
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no comparison with the real tc: {why}"),
    };
    for batch in scenes::BATCHES {
        for force in [false, true] {
            kernel.run("qdisc del dev nrwv0 root");
            let options = narrows_tc::Options { force, ..Default::default() };
            let mut host = Ours::default();
            let ours = narrows_tc::execute_batch(batch, "-", &options, &mut host);
            let theirs = kernel.batch(batch, force);
            let failed = |text: &str| -> Vec<String> {
                let lines = text.lines().filter(|line| line.starts_with("Command failed"));
                lines.map(str::to_owned).collect()
            };
            assert_eq!(ours.code, theirs.code, "{batch}\n{}", theirs.stderr);
            assert_eq!(failed(&ours.stderr), failed(&theirs.stderr), "{batch}");
            let mut names = [Normal { automatic: Vec::new() }, Normal { automatic: Vec::new() }];
            assert_eq!(names[0].text(&ours.stdout), names[1].text(&theirs.stdout), "{batch}");
        }
    }
}

/// Where Narrows means something else than `tc`, or takes what `tc` does not.
fn is_meant(line: &str) -> bool {
    // Behind these tc wants another word, whichever.
    let wants_more = ["nofrag", "firstfrag", "df", "mf"];
    // Only where there are cards that run filters.
    let is_for_hardware = line.contains("skip_hw");
    wants_more.iter().any(|last| line.ends_with(last)) || is_for_hardware
}

#[test]
fn filters_of_any_spelling_are_read_and_shown_as_by_tc() {
    let kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("SKIPPED: no comparison with the real tc: {why}"),
    };
    let tree = [
        "qdisc add dev nrwv0 root handle 1: htb",
        "class add dev nrwv0 parent 1: classid 1:1 htb rate 1mbit",
    ];
    let mut both = Comparison::new(kernel);
    let mut accepted = 0;
    for line in grammar::of_u32(ARBITRARY * 3).iter().filter(|line| !is_meant(line)) {
        both.start_over();
        for line in tree {
            both.line(line);
        }
        let before = both.failures.len();
        both.compare_answers(line);
        for show in ["filter show dev nrwv0 parent 1:", "filter show dev nrwv0"] {
            both.compare_show(show, line);
        }
        accepted += usize::from(both.failures.len() == before && both.ours.has_filters());
    }
    for line in grammar::of_others(ARBITRARY * 2).iter().filter(|line| !is_meant(line)) {
        both.start_over();
        for line in tree {
            both.line(line);
        }
        let (theirs, ours) = both.line(line);
        // 2 is the kernel's answer to what tc could read. Of what tc refuses, some is taken here,
        // such as numbers in any base and ip_proto for both versions of IP.
        let is_same = match theirs.code {
            2 => [0, 2].contains(&ours.code),
            1 => [0, 1, 2].contains(&ours.code),
            code => ours.code == code,
        };
        if !is_same {
            both.failures.push(format!(
                "tc {line}\n  kernel {}: {}\n  ours {}: {}",
                theirs.code, theirs.stderr, ours.code, ours.stderr
            ));
        }
    }
    assert!(both.failures.is_empty(), "{}", both.failures.join("\n\n"));
    assert!(accepted > ARBITRARY / 4, "only {accepted} lines are accepted");
}
