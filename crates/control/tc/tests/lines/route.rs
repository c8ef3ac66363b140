//! Routes commands to two instances, and joins two answers.

use narrows_tc::{Leg, Options, Outcome, Recipients, execute_batch, gather, recipients, route};

fn two() -> Vec<Vec<String>> {
    [["a", "b"], ["c", "d"]].map(|ports| ports.map(str::to_owned).to_vec()).to_vec()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn legs(text: &str) -> Vec<(Recipients, String)> {
    route(text, &two()).into_iter().map(|Leg { to, text }| (to, text)).collect()
}

#[test]
fn a_command_is_for_the_instance_that_has_the_interface() {
    let to = |line| recipients(&words(line), &two());
    assert_eq!(to("qdisc add dev b root pfifo"), Recipients::One(0));
    assert_eq!(to("qdisc add dev c root pfifo"), Recipients::One(1));
    assert_eq!(to("qdisc add dev e root pfifo"), Recipients::None);
}

#[test]
fn a_list_without_an_interface_is_for_all() {
    for line in ["qdisc", "qdisc show", "q ls", "class show", "filter list"] {
        assert_eq!(recipients(&words(line), &two()), Recipients::All, "{line}");
    }
    assert_eq!(recipients(&words("qdisc add root pfifo"), &two()), Recipients::One(0));
}

#[test]
fn actions_belong_to_all_instances_whatever_device_they_name() {
    for line in ["actions list action gact", "actions add action mirred egress redirect dev b"] {
        assert_eq!(recipients(&words(line), &two()), Recipients::All, "{line}");
    }
    // Each has those that no filter refers to, so their answers are one.
    let answer = |stdout: &str| Outcome { stdout: stdout.to_owned(), ..Outcome::default() };
    let options = Options::default();
    let [one, other] = [answer("total acts 1\n"), answer("total acts 2\n")];
    assert_eq!(gather(&[one.clone(), one.clone()], &options), one);
    let both = gather(&[one, other], &options);
    assert_eq!(both.stdout, "total acts 1\ntotal acts 2\n");
}

#[test]
fn comments_quotes_and_continuations_name_no_interface() {
    let text = "# dev a\nqdisc add \\\n 'dev' \"c\" root pfifo # dev b\n";
    assert_eq!(
        legs(text),
        [(Recipients::One(1), "\nqdisc add \\\n 'dev' \"c\" root pfifo # dev b".to_owned())]
    );
}

#[test]
fn lines_of_one_instance_stay_together_and_in_order() {
    let text = "qdisc del dev a root\nqdisc del dev b root\nqdisc del dev c root\nqdisc show\n\
                qdisc show\nqdisc del dev e root\n";
    let legs: Vec<_> = legs(text);
    let to: Vec<_> = legs.iter().map(|leg| leg.0).collect();
    let [first, second] = [0, 1].map(Recipients::One);
    assert_eq!(to, [first, second, Recipients::All, Recipients::All, Recipients::None]);
    assert_eq!(legs[0].1, "qdisc del dev a root\nqdisc del dev b root");
    assert_eq!(legs[3].1, "\n\n\n\nqdisc show");
}

#[test]
fn a_complaint_names_the_line_of_the_whole_batch() {
    let text = "# ports\n\nqdisc add dev a root pfifo\nqdisc add dev e root \\\n pfifo\n";
    let leg = route(text, &two()).pop().unwrap();
    assert_eq!(leg.to, Recipients::None);
    let mut nobody = Recipients::elsewhere(&two());
    let outcome = execute_batch(&leg.text, "file", &Options::default(), &mut nobody);
    assert_eq!(
        outcome.stderr,
        "Cannot find device \"e\". Ports here are a, b, c, d.\nCommand failed file:5\n"
    );
}

#[test]
fn two_lists_in_json_are_one() {
    let options = |pretty| Options { json: true, pretty, ..Options::default() };
    let answers = |texts: &[&str]| -> Vec<Outcome> {
        let answer = |text: &&str| Outcome { stdout: (*text).to_owned(), ..Outcome::default() };
        texts.iter().map(answer).collect()
    };
    let joined = |texts: &[&str], pretty| gather(&answers(texts), &options(pretty)).stdout;
    assert_eq!(joined(&["[{\"a\":[1]}]\n", "[]\n", "[{},{}]\n"], false), "[{\"a\":[1]},{},{}]\n");
    assert_eq!(joined(&["[]\n", "[]\n"], false), "[]\n");
    assert_eq!(joined(&["[ {\n} ]\n", "[ ]\n", "[ {\n} ]\n"], true), "[ {\n},{\n} ]\n");
    assert_eq!(joined(&["[ ]\n", "[ ]\n"], true), "[ ]\n");
}

#[test]
fn the_worst_code_and_all_complaints_are_told() {
    let answer =
        |code, stderr: &str| Outcome { code, stderr: stderr.to_owned(), ..Outcome::default() };
    let both = gather(&[answer(0, ""), answer(2, "no\n")], &Options::default());
    assert_eq!((both.code, both.stderr.as_str()), (2, "no\n"));
}
