//! From the words of a scenario to the commands that an operator gives.
//!
//! `flowbundler maxrate 1gbit` is the qdisc of the port; `mq ; fq ; fq maxrate 1gbit` is one for
//! each queue. They are executed as `tc qdisc replace dev PORT root WORDS`, and the policy that
//! results is compiled for the port's queues, the way that the data plane goes.

use narrows_policy::Plan;
use narrows_qdisc::Spec;
use narrows_shaper::Installation;
use narrows_tc::{Host, OfflineHost};

/// The separator between the words of the port and of its queues.
const NEXT: &str = ";";

/// The plan that `words` make for `port` of `host` with `queues` queues, and the specification for
/// each queue, which ran `before`.
///
/// # Errors
/// The message of `tc` if it refuses the words, or of the policy if it refuses that many queues.
pub(crate) fn lay_out(
    host: &mut OfflineHost,
    port: &str,
    words: &[String],
    queues: usize,
    before: Option<&Installation>,
) -> Result<(Installation, Vec<Spec>), String> {
    execute(host, port, words)?;
    let plan = Plan::of(host.policy().port(port), queues).map_err(|error| error.to_string())?;
    if !plan.front.is_empty() {
        return Err("sets are looked up in the driver, which is not simulated".to_owned());
    }
    Ok(Installation::reconcile(plan, before))
}

/// Executes `words` for `port` of `host`.
///
/// # Errors
/// The message of `tc` if it refuses them, and what to write if they only query something.
pub(crate) fn execute(host: &mut OfflineHost, port: &str, words: &[String]) -> Result<(), String> {
    for line in lines(port, words) {
        let outcome = narrows_tc::execute(&line, host);
        if outcome.code != 0 {
            return Err(outcome.stderr.trim().to_owned());
        }
        if !outcome.stdout.is_empty() {
            return Err(
                "write the words of a qdisc, as tbf rate {rate} burst 1514 limit 1mb".to_owned()
            );
        }
    }
    Ok(())
}

/// The commands for `port`, each without its first word.
fn lines(port: &str, words: &[String]) -> Vec<Vec<String>> {
    let mut parts = words.split(|word| word == NEXT);
    let root = parts.next().unwrap_or_default();
    let queues: Vec<&[String]> = parts.collect();
    let line = |place: &[&str], words: &[String]| -> Vec<String> {
        let command = ["qdisc", "replace", "dev", port].into_iter().chain(place.iter().copied());
        command.map(str::to_owned).chain(words.iter().cloned()).collect()
    };
    if queues.is_empty() {
        return vec![line(&["root"], root)];
    }
    let of_queue =
        |(number, words): (usize, &&[String])| line(&["parent", &format!("1:{number:x}")], words);
    let root = line(&["root", "handle", "1:"], root);
    std::iter::once(root).chain((1..).zip(&queues).map(of_queue)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        lines("B", &words).iter().map(|line| line.join(" ")).collect()
    }

    #[test]
    fn the_words_of_queues_follow_those_of_the_port() {
        assert_eq!(commands("fq maxrate 1gbit"), ["qdisc replace dev B root fq maxrate 1gbit"]);
        let expected = [
            "qdisc replace dev B root handle 1: mq",
            "qdisc replace dev B parent 1:1 fq",
            "qdisc replace dev B parent 1:2 fq maxrate 1gbit",
        ];
        assert_eq!(commands("mq ; fq ; fq maxrate 1gbit"), expected);
        assert_eq!(commands(""), ["qdisc replace dev B root "].map(str::trim_end));
    }
}
