//! The agent's own socket, and what is shown of what it says.

use narrows_fleet::metrics::{LIMITS_MAX, exposition};
use narrows_fleet::table::Text;
use narrows_fleet::view::{Question, Subject, View, ViewError, ask};
use narrows_snapshot::fleet_agent::{BoxView, FleetView, LimitView, Part, SharerView};
use narrows_snapshot::fleet_agent::{Past, Shown, Traffic};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("nrw-fleet-{}-{name}", std::process::id()))
}

/// Serves the socket at `path` while `work` runs on a thread of its own.
fn serving(path: &Path, work: impl FnOnce() + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let view = View::at(path.to_owned()).unwrap();
        let (asked, mut questions) = mpsc::channel::<Question>(1);
        let work = tokio::task::spawn_blocking(work);
        let answering = async {
            while let Some(Question { subject, answer }) = questions.recv().await {
                answer.send(format!("{subject:?}\n")).unwrap();
            }
        };
        tokio::select! {
            () = view.serve(asked) => {}
            () = answering => {}
            done = work => done.unwrap(),
        }
    });
}

#[test]
fn a_question_has_its_answer_and_anything_else_has_none() {
    let path = path("answers");
    let at = path.clone();
    serving(&path, move || {
        assert_eq!(ask(&at, Subject::Show).unwrap(), "Show\n");
        assert_eq!(ask(&at, Subject::Metrics).unwrap(), "Metrics\n");
        assert_eq!(ask(&at, Subject::Busiest(50)).unwrap(), "Busiest(50)\n");
        let off = Subject::Forget(vec!["b".into(), "c".into()]);
        assert_eq!(ask(&at, off).unwrap(), "Forget([\"b\", \"c\"])\n");
        let mode = std::fs::metadata(&at).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for nonsense in [
            &b"shut down"[..],
            b"",
            b"show\n",
            b"forget",
            b"forget a  b",
            b"busiest",
            b"busiest -1",
            &[0xff; 4_096],
        ] {
            let mut stream = UnixStream::connect(&at).unwrap();
            // It may have hung up already.
            let _ = stream.write_all(nonsense);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{nonsense:?}: {answer:?}");
        }
        let second = tokio::runtime::Handle::current().block_on(async { View::at(at.clone()) });
        assert!(matches!(second, Err(ViewError::Taken(_))), "{second:?}");
        assert_eq!(ask(&at, Subject::Show).unwrap(), "Show\n", "the first still answers");
    });
    let error = ask(&path, Subject::Show).unwrap_err().to_string();
    assert!(error.contains("narrows-fleet run"), "{error}");
}

#[test]
fn a_socket_that_was_left_is_replaced() {
    let path = path("left");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let at = path.clone();
    serving(&path, move || assert_eq!(ask(&at, Subject::Show).unwrap(), "Show\n"));
    assert!(!path.exists(), "it goes with its agent");
}

fn limit(name: &str) -> LimitView {
    let sharer = |name: &str, demand_bps, share_bps: Option<u64>, in_force_bps: u64| SharerView {
        name: name.into(),
        is_heard: share_bps != Some(0),
        demand_bps,
        share_bps: share_bps.filter(|share| *share > 0),
        in_force_bps,
        sent_bps: in_force_bps / 2,
        flows: demand_bps.is_none().then_some(12.5),
    };
    LimitView {
        name: name.into(),
        port: "eth1".into(),
        at: "1:10".into(),
        limit_bps: 300_000_000,
        safe_bps: 100_000_000,
        claimed_bps: 0,
        is_held_back: false,
        in_force_bps: 150_000_000,
        sent_bps: 149_900_000,
        lent: Vec::new(),
        borrowed: vec![Part { name: "b".into(), bps: 50_000_000 }],
        is_by_flow: true,
        boxes: vec![
            sharer("a", None, Some(150_000_000), 150_000_000),
            sharer("b", Some(1_500), Some(50_000_000), 50_000_000),
            sharer("c\u{1b}[2J", Some(0), Some(0), 100_000_000),
        ],
        sum_bps: 300_000_000,
    }
}

fn shown(limits: Vec<LimitView>) -> Shown {
    let boxes = ["a", "b", "c\u{1b}[2J"].into_iter().zip([Some(0), Some(12), Some(65_000)]);
    let boxes = boxes.map(|(name, heard_ms_ago)| BoxView {
        name: name.into(),
        is_heard: heard_ms_ago < Some(2_000),
        heard_ms_ago,
        lease_left_ms: (name == "b").then_some(1_900),
        off: None,
    });
    Shown {
        fleet: "edge".into(),
        interval_ms: 50,
        lease_ms: 2_000,
        connected_through: Some("a (10.0.0.1)".into()),
        instance_trouble: None,
        traffic: Traffic { turns: 7, ..Traffic::default() },
        view: FleetView { me: "a".into(), boxes: boxes.collect(), limits, limits_left_out: 0 },
        events: vec![Past { ms_ago: 63_000, what: "c is silent".into() }],
    }
}

#[test]
fn people_see_boxes_parts_and_a_partition_and_no_escape_sequence() {
    let text = Text(&shown(vec![limit("line")])).to_string();
    for words in [
        "PARTITION: 2 of 3 boxes are heard; silent: c\\x1b[2J",
        "SILENT for 65 s",
        "12 ms ago",
        "line: limit 300.00 Mbit/s, in force on all boxes 300.00 Mbit/s, shared by flow\n",
        "safe share 100.00 Mbit/s + borrowed 50.00 Mbit/s from b, in force 150.00 Mbit/s",
        "held back",
        "12.5",
        "1.5 kbit/s",
        "63 s ago  c is silent",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    eprintln!("{text}");
}

#[test]
fn people_see_which_boxes_are_off_and_what_of_their_shares_is_used() {
    let mut shown = shown(vec![limit("line")]);
    shown.view.boxes[2].off = Some("claimed".into());
    shown.view.limits[0].claimed_bps = 99_000_000;
    shown.view.limits[0].is_held_back = true;
    let text = Text(&shown).to_string();
    for words in [
        "OFF, its share is used",
        "safe share 100.00 Mbit/s + of boxes that are off 99.00 Mbit/s",
        "in force 150.00 Mbit/s (WAITS since its start for all others' word)",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    assert!(!text.contains("PARTITION"), "{text}");
}

#[test]
fn what_is_shown_survives_its_way_as_json() {
    let before = shown(vec![limit("line")]);
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Shown>(&text).unwrap(), before);
}

#[test]
fn metrics_are_bounded_and_say_what_they_leave_out() {
    let many = (0..LIMITS_MAX + 3).map(|number| limit(&format!("limit {number}"))).collect();
    let text = exposition(&shown(many));
    let name = "narrows_fleet_agent_borrowed_bits_per_second{";
    assert_eq!(text.matches(name).count(), LIMITS_MAX);
    assert!(text.contains("narrows_fleet_agent_limits_left_out{fleet=\"edge\"} 3\n"));
    let sum = "narrows_fleet_agent_sum_bits_per_second{fleet=\"edge\",limit=\"limit 7\",";
    assert!(text.contains(sum), "{text}");
    let lease = "narrows_fleet_agent_box_lease_left_seconds{fleet=\"edge\",box=\"b\"} 1.9\n";
    assert_eq!(text.matches("box_lease_left_seconds{").count(), 1);
    assert!(text.contains(lease));
    assert!(text.contains("narrows_fleet_agent_box_heard{fleet=\"edge\",box=\"b\"} 1\n"));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}
