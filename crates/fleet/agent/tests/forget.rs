//! An operator says that a box is off: the agent answers, and saves it before it says so.

use narrows_fleet::agent::Agent;
use narrows_fleet::claims;
use narrows_fleet::clock;
use narrows_fleet::config::Config;
use narrows_fleet::engine::{Engine, Handed, Report};
use narrows_fleet::plane::{Plane, PlaneError};
use narrows_fleet::view::{DONE, Question, Subject};
use narrows_snapshot::{FleetFacts, FleetOrder};
use std::path::Path;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A data plane without limits.
struct Empty;

impl Plane for Empty {
    async fn ask(&mut self, order: FleetOrder) -> Result<FleetFacts, PlaneError> {
        let FleetOrder { deadline_ns, since, .. } = order;
        let (now_ns, cursor) = (clock::now_ns(), since + 1);
        Ok(FleetFacts { now_ns, deadline_ns, cursor, ..FleetFacts::default() })
    }
}

/// An engine through which nothing passes.
struct Silent;

impl Engine for Silent {
    async fn next(&mut self) -> Report {
        std::future::pending().await
    }

    fn publish(&mut self, _: Option<&str>, _: Vec<u8>) -> Handed {
        Handed::Dropped
    }
}

fn config(folder: &Path) -> Config {
    let text = "fleet = 'edge'\nme = 'a'\nclaims = 'state/claims.json'\n\
                [[member]]\nname = 'a'\n[[member]]\nname = 'b'\n\
                [engine]\nservers = ['nats://127.0.0.1:4222']\n";
    Config::parse(text, folder).unwrap()
}

/// What a new agent answers to these questions, one after the other.
fn answers(config: &Config, subjects: Vec<Subject>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (asked, questions) = mpsc::channel(1);
        let mut agent = Agent::new(config.clone(), Empty, Silent, questions).unwrap();
        agent.restore(claims::read(&config.claims).unwrap());
        let (end, ended) = oneshot::channel::<()>();
        let ask = async {
            let mut answers = Vec::new();
            for subject in subjects {
                // It knows its data plane after two turns.
                let text = loop {
                    let (answer, answered) = oneshot::channel();
                    let subject = subject.clone();
                    asked.send(Question { subject, answer }).await.unwrap();
                    let text = answered.await.unwrap();
                    if !text.contains("has just started") {
                        break text;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                };
                answers.push(text);
            }
            drop(end);
            answers
        };
        let run = agent.run(async { drop(ended.await) });
        tokio::join!(run, ask).1
    })
}

fn forget(name: &str) -> Subject {
    Subject::Forget(vec![name.to_owned()])
}

#[test]
fn a_box_that_is_off_is_saved_and_known_after_a_start() {
    let folder = std::env::temp_dir().join(format!("nrw-forget-{}", std::process::id()));
    let config = config(&folder);
    let said = answers(&config, vec![forget("c"), forget("a"), forget("b"), Subject::Show]);
    assert!(said[0].contains("c is not a member"), "{}", said[0]);
    assert!(said[1].contains("a is this box"), "{}", said[1]);
    assert_eq!(said[2], DONE);
    assert!(said[3].contains(r#""off":"waits""#), "{}", said[3]);
    let saved = claims::read(&config.claims).unwrap();
    assert_eq!(saved.iter().map(|claim| claim.of.as_str()).collect::<Vec<_>>(), ["b"]);

    // The box itself was off, as far as its data plane tells: others may have said so.
    let said = answers(&config, vec![forget("c"), Subject::Show]);
    assert!(said[1].contains(r#""off":null"#), "{}", said[1]);
    assert!(said[1].contains("this box was off itself"), "{}", said[1]);
    assert_eq!(claims::read(&config.claims).unwrap(), []);
    std::fs::remove_dir_all(folder).unwrap();
}
