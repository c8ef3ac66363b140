//! A cluster of three real NATS servers, as `narrows-fleet init` configures it: who may say what.

use narrows_fleet::config::{Config, Link, seed};
use narrows_fleet::engine::nats::Nats;
use narrows_fleet::engine::{Engine, Handed, Report};
use narrows_fleet::name::Name;
use narrows_fleet::subjects::Subjects;
use narrows_testbed::fleet::{self, Fleet, box_name};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

const PROGRAM: &str = env!("CARGO_BIN_EXE_narrows-fleet");
/// Long enough for what happens.
const PATIENCE: Duration = Duration::from_secs(15);
/// Long enough for what must not happen.
const SILENCE: Duration = Duration::from_millis(1_500);

/// Three boxes; none, with a message, where there can be none.
fn three_boxes() -> Option<Fleet> {
    if let Err(refusal) = fleet::check() {
        eprintln!("SKIPPED: {refusal}");
        return None;
    }
    Some(Fleet::bare(Path::new(PROGRAM), 3).unwrap())
}

/// Runs `work` on the box `number`. What it opens stays there.
fn on_box<T: Send>(fleet: &Fleet, number: usize, work: impl AsyncFnOnce(Config) -> T + Send) -> T {
    let config = Config::read(&fleet.config(number)).unwrap();
    let inside = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        Ok(runtime.enable_all().build()?.block_on(work(config)))
    };
    fleet.namespace(number).enter(inside).unwrap()
}

async fn connect_as(config: &Config, link: &Link, me: &str) -> Nats {
    let seed = link.nkey.as_deref().map(|path| seed(path).unwrap());
    let subjects = Subjects::new(config.fleet.clone(), me.parse::<Name>().unwrap());
    Nats::connect(link, seed, subjects).await.unwrap()
}

/// Waits for the report that `wanted` is.
async fn wait_for<T>(engine: &mut Nats, wanted: impl Fn(&Report) -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut before = Vec::new();
    loop {
        let Ok(report) = timeout_at(deadline, engine.next()).await else {
            panic!("not within {PATIENCE:?}, but {before:?}")
        };
        match wanted(&report) {
            Some(found) => return found,
            None => before.push(report),
        }
    }
}

async fn connected(engine: &mut Nats) -> String {
    wait_for(engine, |report| match report {
        Report::Connected { through } => Some(through.clone()),
        _ => None,
    })
    .await
}

/// Whether no message comes for a while.
async fn is_silent(engine: &mut Nats) -> bool {
    let message = async {
        loop {
            if let Report::Message { .. } = engine.next().await {
                return;
            }
        }
    };
    timeout(SILENCE, message).await.is_err()
}

/// Sends `bytes` to all, again and again, as agents do.
async fn beacon(engine: &mut Nats, bytes: &[u8]) {
    loop {
        engine.publish(None, bytes.to_vec());
        // The connection lives from being read.
        let _ = timeout(Duration::from_millis(50), engine.next()).await;
    }
}

/// Runs `work` while the box `number` sends `bytes` to all.
fn beside_a_beacon<T>(fleet: &Fleet, number: usize, bytes: &[u8], work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(move || {
            on_box(fleet, number, async |config| {
                let mut engine = connect_as(&config, &config.link, &box_name(number)).await;
                tokio::select! {
                    () = beacon(&mut engine, bytes) => {}
                    _ = ended => {}
                }
            });
        });
        let result = work();
        drop(end);
        result
    })
}

#[test]
fn a_message_reaches_all_boxes_or_one_and_names_its_sender() {
    let Some(fleet) = three_boxes() else { return };
    let heard = |number: usize| {
        on_box(&fleet, number, async |config| {
            let mut engine = connect_as(&config, &config.link, &box_name(number)).await;
            connected(&mut engine).await;
            wait_for(&mut engine, |report| match report {
                Report::Message { from, bytes } => Some((from.clone(), bytes.clone())),
                _ => None,
            })
            .await
        })
    };
    let (second, third) = beside_a_beacon(&fleet, 0, b"hello", || {
        std::thread::scope(|scope| {
            let second = scope.spawn(|| heard(1));
            (heard(2), second.join().unwrap())
        })
    });
    let expected = ("box1".to_owned(), b"hello".to_vec());
    assert_eq!((second, third), (expected.clone(), expected));
}

#[test]
fn a_box_cannot_speak_for_another() {
    let Some(fleet) = three_boxes() else { return };
    on_box(&fleet, 0, async |config| {
        // With the key of the first box, in the name of the second.
        let mut engine = connect_as(&config, &config.link, "box2").await;
        connected(&mut engine).await;
        assert_eq!(engine.publish(Some("box3"), b"forged".to_vec()), Handed::Over);
        let refused = wait_for(&mut engine, |report| match report {
            Report::Trouble(why) => Some(why.clone()),
            _ => None,
        })
        .await;
        assert!(refused.to_lowercase().contains("permissions violation"), "{refused}");
    });
    // The server tells the box first, and writes it down then.
    let begin = std::time::Instant::now();
    while !fleet.server_log(0).contains("Publish Violation") {
        assert!(begin.elapsed() < Duration::from_secs(10), "{}", fleet.server_log(0));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn neither_a_wrong_key_nor_a_wrong_certificate_gets_in() {
    let Some(fleet) = three_boxes() else { return };
    let stranger = fleet.folder().join("stranger.nkey");
    let pair = nkeys::KeyPair::new_user();
    std::fs::write(&stranger, pair.seed().unwrap()).unwrap();
    std::fs::set_permissions(&stranger, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    on_box(&fleet, 0, async |config| {
        let wrong_key = Link { nkey: Some(stranger), ..config.link.clone() };
        let no_key = Link { nkey: None, ..config.link.clone() };
        let no_certificate = Link { certificate: None, ..config.link.clone() };
        for link in [wrong_key, no_key, no_certificate] {
            let mut engine = connect_as(&config, &link, "box1").await;
            let outcome = wait_for(&mut engine, |report| match report {
                Report::Trouble(why) => Some(why.clone()),
                Report::Connected { through } => Some(format!("connected {through}")),
                _ => None,
            })
            .await;
            assert!(!outcome.starts_with("connected"), "{link:?} got in: {outcome}");
            assert_eq!(engine.publish(None, b"no".to_vec()), Handed::Dropped);
        }
    });
}

#[test]
fn an_agents_key_makes_no_server() {
    let Some(fleet) = three_boxes() else { return };
    let conf = std::fs::read_to_string(fleet.etc(0).join("nats-server.conf")).unwrap();
    let forged = conf.replace("engine/server.pem", "agent/agent.pem");
    let forged = forged.replace("engine/server.key", "agent/agent.key");
    // Another server in the first box's namespace, which has only an agent's key.
    let forged = forged
        .replace(":4222", ":5222")
        .replace("listen: \"10.9.0.1:6222", "listen: \"10.9.0.1:7222");
    let path = fleet.folder().join("forged.conf");
    std::fs::write(&path, forged.replace("server_name: \"box1\"", "server_name: \"forged\""))
        .unwrap();
    let mut command = fleet.namespace(0).command("timeout");
    command.args(["3", "nats-server", "-c"]).arg(&path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Server is ready"), "{said}");
    assert!(!said.contains("Route connection created") || said.contains("TLS"), "{said}");
    let log = fleet.server_log(1);
    assert!(log.contains("TLS route handshake error"), "{log}");
}

#[test]
fn a_killed_server_is_survived() {
    let Some(mut fleet) = three_boxes() else { return };
    let (up, is_up) = std::sync::mpsc::channel();
    let (down, is_down) = tokio::sync::oneshot::channel::<()>();
    let (fleet_0, fleet_1) = (Config::read(&fleet.config(0)).unwrap(), fleet.namespace(0).clone());
    let (before, after, silent) = std::thread::scope(|scope| {
        let box_1 = scope.spawn(move || {
            let inside = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                Ok(runtime.block_on(async {
                    let mut engine = connect_as(&fleet_0, &fleet_0.link, "box1").await;
                    let before = connected(&mut engine).await;
                    let silent = is_silent(&mut engine).await;
                    up.send(()).unwrap();
                    is_down.await.unwrap();
                    let after = connected(&mut engine).await;
                    (before, after, silent)
                }))
            };
            fleet_1.enter(inside).unwrap()
        });
        is_up.recv_timeout(PATIENCE).unwrap();
        fleet.kill_server(0).unwrap();
        down.send(()).unwrap();
        box_1.join().unwrap()
    });
    assert!(before.starts_with("box1 "), "{before}");
    assert!(after.starts_with("box2 "), "its own server is gone, so it uses the next: {after}");
    assert!(silent, "nobody sent anything");
}
