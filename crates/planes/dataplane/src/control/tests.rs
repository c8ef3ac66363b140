use super::place::{PlaceError, clear_folder};
use super::server::{ControlServer, Step, Task, may_ask};
use narrows_control::{ANSWER_TIME, Answer, BATCH_MAX, Client, ControlError, LINE_MAX, Request};
use narrows_forwarding::Forwarding;
use narrows_tc::{OfflineHost, Outcome};
use proptest::prelude::*;
use rustix::process::Uid;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Every client gets an answer within this time.
const PROMISE: Duration = Duration::from_secs(1);

fn ports() -> Forwarding {
    Forwarding::wire("a", "b").unwrap()
}

/// An instance's work: its answers name the request, and a line of a batch takes 5 ms.
fn echo(task: &mut Task, _: bool) -> Step {
    Step::Done(match task {
        Task::Whole(Request::Ports) => Answer::Ports(ports().names().to_vec()),
        Task::Whole(Request::Tc { args, .. }) => {
            Outcome { stdout: args.join(" "), ..Outcome::default() }.into()
        }
        Task::Whole(other) => Answer::Refused(format!("{other:?}")),
        Task::Batch(batch) => {
            thread::sleep(Duration::from_millis(5));
            if batch.step(&mut OfflineHost::default()) {
                return Step::More;
            }
            batch.end().into()
        }
        Task::Restore(restore) => restore.end().into(),
        Task::Beside(_) => Answer::Refused("nothing runs beside".to_owned()),
    })
}

/// A place for sockets that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-control-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn client(&self) -> Client {
        Client::at(self.socket())
    }

    fn socket(&self) -> PathBuf {
        self.0.join("a,b.sock")
    }

    fn open(&self) -> Result<ControlServer, PlaceError> {
        ControlServer::open_in(&self.0, &ports())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lets `server` serve clients while `ask` runs.
fn serving<T: Send>(server: &mut ControlServer, ask: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            server.serve(echo);
            thread::sleep(Duration::from_millis(1));
        }
        asking.join().unwrap()
    })
}

/// The instance's answer to a client that writes `bytes`, and then ends or keeps waiting.
fn answer_to(name: &str, bytes: &[u8], ends: bool) -> Answer {
    let folder = Folder::new(name);
    let mut server = folder.open().unwrap();
    let said = serving(&mut server, || {
        let stream = UnixStream::connect(folder.socket()).unwrap();
        (&stream).write_all(bytes).unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut said = Vec::new();
        (&stream).read_to_end(&mut said).unwrap();
        said
    });
    serde_json::from_slice(&said).unwrap()
}

#[test]
fn a_request_is_answered() {
    let folder = Folder::new("answered");
    let mut server = folder.open().unwrap();
    let args = vec!["qdisc".to_owned(), "show".to_owned()];
    let answer =
        serving(&mut server, || folder.client().ask(&Request::Tc { args, names: None })).unwrap();
    assert!(matches!(answer, Answer::Tc { stdout, .. } if stdout == "qdisc show"));
}

#[test]
fn only_the_owner_can_reach_the_socket() {
    let folder = Folder::new("owner");
    let _server = folder.open().unwrap();
    assert_eq!(std::fs::metadata(folder.socket()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn only_root_and_the_owner_may_ask() {
    let [root, owner, other] = [0, 1000, 1001].map(Uid::from_raw);
    assert!(may_ask(root, owner) && may_ask(owner, owner) && may_ask(root, root));
    assert!(!may_ask(other, owner) && !may_ask(owner, root));
}

#[test]
fn nonsense_is_refused() {
    for bytes in
        [&b""[..], b"\n", b"GET / HTTP/1.1\r\n\r\n", b"{\"tc\":{}}\n", b"\xff\x00\n", b"[[[["]
    {
        let answer = answer_to("nonsense", bytes, true);
        let refused = matches!(&answer, Answer::Refused(why) if why.starts_with("not a request"));
        assert!(refused, "{bytes:?}: {answer:?}");
    }
}

#[test]
fn a_line_without_end_is_cut_off() {
    // The input continues for longer than that and never ends, so only the cut can end this.
    let bytes = vec![b'x'; LINE_MAX + (1 << 20)];
    let answer = answer_to("endless", &bytes, false);
    let is_cut = matches!(&answer, Answer::Refused(why) if why.contains("longer than 16 MiB"));
    assert!(is_cut, "{answer:?}");
}

#[test]
fn the_longest_line_is_accepted() {
    // As JSON: quotes and brackets around the words.
    let args = vec!["x".repeat(LINE_MAX - 100)];
    let request = serde_json::to_vec(&Request::Tc { args, names: None }).unwrap();
    assert!(request.len() < LINE_MAX);
    assert!(matches!(answer_to("longest", &request, true), Answer::Tc { code: 0, .. }));
}

#[test]
fn silent_and_slow_clients_delay_no_others() {
    let folder = Folder::new("silent");
    let mut server = folder.open().unwrap();
    let connect = || UnixStream::connect(folder.socket()).unwrap();
    let silent: Vec<UnixStream> = (0..200).map(|_| connect()).collect();
    let slow = connect();
    for _ in 0..5 {
        (&slow).write_all(b" ").unwrap();
        let begin = Instant::now();
        let answer = serving(&mut server, || folder.client().ask(&Request::Ports));
        assert!(begin.elapsed() < PROMISE, "{:?}", begin.elapsed());
        assert!(matches!(answer, Ok(Answer::Ports(_))), "{answer:?}");
    }
    drop(silent);
}

#[test]
fn a_client_that_does_not_read_delays_no_others() {
    let folder = Folder::new("deaf");
    let mut server = folder.open().unwrap();
    let deaf = UnixStream::connect(folder.socket()).unwrap();
    // Longer than the kernel's buffers.
    let args = vec!["x".repeat(4 << 20)];
    serving(&mut server, || {
        serde_json::to_writer(&deaf, &Request::Tc { args, names: None }).unwrap();
        (&deaf).write_all(b"\n").unwrap();
    });
    let begin = Instant::now();
    assert!(serving(&mut server, || folder.client().ask(&Request::Ports)).is_ok());
    assert!(begin.elapsed() < PROMISE, "{:?}", begin.elapsed());
}

const LINE: &str = "qdisc replace dev a root pfifo limit 7\n";

/// Asks `client` to run a batch of slow lines, with so much patience.
fn batch(client: &Client, lines: usize, time: Duration) -> Result<Answer, ControlError> {
    let text = LINE.repeat(lines);
    let (name, bytes) = ("-".to_owned(), text.len() as u64);
    let request = Request::Batch { options: Vec::new(), name, bytes, names: None };
    client.ask_within(&request, &text, time)
}

#[test]
fn a_batch_that_takes_longer_than_a_client_waits_for_a_word_is_answered() {
    let folder = Folder::new("batch");
    let mut server = folder.open().unwrap();
    let (begin, time) = (Instant::now(), Duration::from_millis(900));
    let answer = serving(&mut server, || batch(&folder.client(), 400, time));
    assert!(begin.elapsed() > time * 2, "{:?}", begin.elapsed());
    assert!(matches!(answer, Ok(Answer::Tc { code: 0, .. })), "{answer:?}");
}

#[test]
fn others_are_served_while_a_batch_is_under_way() {
    let folder = Folder::new("beside");
    let mut server = folder.open().unwrap();
    serving(&mut server, || {
        thread::scope(|scope| {
            let long = scope.spawn(|| batch(&folder.client(), 300, ANSWER_TIME));
            thread::sleep(Duration::from_millis(100));
            let begin = Instant::now();
            assert!(folder.client().ask(&Request::Ports).is_ok());
            assert!(begin.elapsed() < PROMISE && !long.is_finished(), "{:?}", begin.elapsed());
            assert!(matches!(long.join().unwrap(), Ok(Answer::Tc { code: 0, .. })));
        });
    });
    assert!(!server.is_busy());
}

/// How many lines of batches `work` has run.
fn counting(lines: &mut usize) -> impl FnMut(&mut Task, bool) -> Step {
    |task, _| match task {
        Task::Batch(batch) => {
            let more = batch.step(&mut OfflineHost::default());
            *lines += usize::from(more);
            if more { Step::More } else { Step::Done(batch.end().into()) }
        }
        other => echo(other, false),
    }
}

/// The bytes of a batch of so many lines.
fn bytes_of(lines: usize) -> Vec<u8> {
    let text = LINE.repeat(lines);
    // What follows the last line break is a line, too.
    let text = text.trim_end();
    let (name, bytes) = ("-".to_owned(), text.len() as u64);
    let request = Request::Batch { options: Vec::new(), name, bytes, names: None };
    let mut all = serde_json::to_vec(&request).unwrap();
    all.push(b'\n');
    all.extend_from_slice(text.as_bytes());
    all
}

#[test]
fn a_client_learns_how_far_its_batch_came_when_the_instance_stops() {
    let folder = Folder::new("stops");
    let mut server = folder.open().unwrap();
    let answer = thread::scope(|scope| {
        let time = Duration::from_millis(600);
        let folder = &folder;
        let asking = scope.spawn(move || batch(&folder.client(), 100_000, time));
        let begin = Instant::now();
        while begin.elapsed() < PROMISE {
            server.serve(echo);
        }
        assert!(server.is_busy() && server.is_amid_batch());
        asking.join().unwrap()
    });
    let Err(ControlError::SilentBatch { line, pid, .. }) = answer else { panic!("{answer:?}") };
    assert!((20..1000).contains(&line), "{line}");
    assert_eq!(pid, Some(std::process::id() as i32));
}

#[test]
fn a_batch_that_has_begun_ends_whole_whatever_becomes_of_its_client() {
    let folder = Folder::new("whole");
    let mut server = folder.open().unwrap();
    let mut lines = 0;
    let mut client = UnixStream::connect(folder.socket()).unwrap();
    client.write_all(&bytes_of(1000)).unwrap();
    while lines == 0 {
        server.serve(counting(&mut lines));
    }
    drop(client);
    // All connections are taken, by clients that say nothing, say half, or do not read.
    let others: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = UnixStream::connect(folder.socket()).unwrap();
            let half = bytes_of(9);
            let said: &[u8] = [&b""[..], b"{\"tc\":", b"\"show\"\n", &half[..90]][number % 4];
            stream.write_all(said).unwrap();
            server.serve(counting(&mut lines));
            stream
        })
        .collect();
    while server.is_busy() {
        server.serve(counting(&mut lines));
    }
    assert_eq!(lines, 1000);
    drop(others);
}

#[test]
fn a_batch_that_did_not_arrive_as_a_whole_is_not_run_at_all() {
    let folder = Folder::new("half");
    let mut server = folder.open().unwrap();
    let whole = bytes_of(1000);
    for part in [1, whole.len() / 2, whole.len() - 1] {
        let mut lines = 0;
        let mut client = UnixStream::connect(folder.socket()).unwrap();
        client.write_all(&whole[..part]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        for _ in 0..20 {
            server.serve(counting(&mut lines));
        }
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert!(matches!(serde_json::from_slice(&said).unwrap(), Answer::Refused(_)));
        assert!(lines == 0 && !server.is_busy(), "{part}: {lines}");
    }
}

#[test]
fn a_batch_whose_client_has_left_before_it_began_does_not_begin() {
    let folder = Folder::new("left");
    let mut server = folder.open().unwrap();
    let mut client = UnixStream::connect(folder.socket()).unwrap();
    client.write_all(&bytes_of(10)).unwrap();
    let wait = |_: &mut Task, _: bool| Step::Later;
    (0..5).for_each(|_| drop(server.serve(wait)));
    assert!(!server.is_busy(), "it waits");
    drop(client);
    let mut lines = 0;
    (0..5).for_each(|_| drop(server.serve(counting(&mut lines))));
    assert_eq!(lines, 0);
}

#[test]
fn several_batches_have_a_turn_after_the_other() {
    let folder = Folder::new("turns");
    let mut server = folder.open().unwrap();
    let clients: Vec<UnixStream> = (0..3)
        .map(|_| {
            let mut client = UnixStream::connect(folder.socket()).unwrap();
            client.write_all(&bytes_of(50)).unwrap();
            client
        })
        .collect();
    let mut most = 0;
    let mut lines = 0;
    for _ in 0..200 {
        let before = lines;
        server.serve(counting(&mut lines));
        most = most.max(lines - before);
    }
    assert_eq!((lines, most), (150, 1), "one slice in each turn of the loop");
    drop(clients);
}

#[test]
fn a_batch_of_fifty_megabytes_is_taken() {
    let folder = Folder::new("large");
    let mut server = folder.open().unwrap();
    let comment = format!("# {}\n", "x".repeat(1 << 20)).repeat(50);
    let (mut lines, client) = (0, folder.client());
    let answer = thread::scope(|scope| {
        let asking = scope.spawn(|| client.batch(&[], "-", &comment, None));
        while !asking.is_finished() {
            server.serve(counting(&mut lines));
        }
        asking.join().unwrap()
    });
    assert!(matches!(answer, Ok(Answer::Tc { code: 0, .. })), "{answer:?}");
    assert_eq!(lines, 51);
    let most = vec![b'\n'; BATCH_MAX as usize + 1];
    let refused = client.batch(&[], "-", std::str::from_utf8(&most).unwrap(), None);
    assert!(matches!(refused, Err(ControlError::Refused(why)) if why.contains("divide it")));
}

#[test]
fn a_long_answer_is_read_by_a_client_that_takes_its_time() {
    let folder = Folder::new("answer");
    let mut server = folder.open().unwrap();
    let long = |_: &mut Task, _: bool| {
        let stdout = "x".repeat(40 << 20);
        Step::Done(Outcome { stdout, ..Outcome::default() }.into())
    };
    let answer = thread::scope(|scope| {
        let client = folder.client();
        let asking = scope.spawn(move || client.ask(&Request::Show));
        while !asking.is_finished() {
            server.serve(long);
        }
        asking.join().unwrap()
    });
    assert!(matches!(answer, Ok(Answer::Tc { stdout, .. }) if stdout.len() == 40 << 20));
}

#[test]
fn a_waiting_client_is_redirected_to_the_process_that_takes_over() {
    let folder = Folder::new("moved");
    let mut server = folder.open().unwrap();
    let mut early = UnixStream::connect(folder.socket()).unwrap();
    server.serve(echo);
    server.leave();
    let mut said = Vec::new();
    early.read_to_end(&mut said).unwrap();
    assert!(matches!(serde_json::from_slice(&said).unwrap(), Answer::Moved));
}

#[test]
fn exactly_one_of_many_simultaneous_starts_gets_the_ports() {
    let folder = Folder::new("many");
    for _ in 0..50 {
        let all = Barrier::new(8);
        let start = |ports: [&'static str; 2]| {
            let (all, folder) = (&all, &folder.0);
            move || {
                let ports = Forwarding::wire(ports[0], ports[1]).unwrap();
                all.wait();
                let outcome = ControlServer::open_in(folder, &ports);
                // No thread gives up its place before all have asked for one.
                all.wait();
                outcome.map(drop).map_err(|error| error.to_string())
            }
        };
        let outcomes: Vec<_> = thread::scope(|scope| {
            // All of them want `b`.
            let wanted = [["a", "b"], ["b", "a"], ["a", "b"], ["b", "c"]];
            let starting: Vec<_> =
                wanted.into_iter().cycle().take(8).map(|ports| scope.spawn(start(ports))).collect();
            starting.into_iter().map(|starting| starting.join().unwrap()).collect()
        });
        let refusals: Vec<&String> = outcomes.iter().flat_map(|one| one.as_ref().err()).collect();
        assert_eq!(refusals.len(), 7, "{outcomes:?}");
        assert!(refusals.iter().all(|why| why.contains("another narrows")), "{refusals:?}");
        assert!(folder.names().is_empty(), "{:?}", folder.names());
    }
}

#[test]
fn only_an_unserved_socket_is_replaced() {
    let folder = Folder::new("stale");
    // As a killed process leaves it: bound, but unserved.
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let mut server = folder.open().unwrap();
    assert!(matches!(folder.open(), Err(PlaceError::Taken { port }) if port == "a"));
    assert!(serving(&mut server, || folder.client().ask(&Request::Ports)).is_ok());
    drop(server);
    assert!(!folder.socket().exists());
}

#[test]
fn files_of_killed_instances_are_removed_and_others_kept() {
    let [dead, alive] = ["dead", "alive"].map(Folder::new);
    drop(UnixListener::bind(dead.socket()).unwrap());
    std::fs::write(dead.0.join("a.lock"), "").unwrap();
    clear_folder(&dead.0);
    assert!(!dead.0.exists());
    let mut server = alive.open().unwrap();
    let before = alive.names();
    clear_folder(&alive.0);
    assert_eq!(alive.names(), before);
    assert!(serving(&mut server, || alive.client().ask(&Request::Ports)).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        answer_to("bytes", &bytes, true);
    }

    #[test]
    fn any_words_arrive_as_they_were(args in prop::collection::vec(any::<String>(), 0..8)) {
        let request = serde_json::to_vec(&Request::Tc { args: args.clone(), names: None }).unwrap();
        let answer = answer_to("words", &request, true);
        let Answer::Tc { stdout, .. } = answer else { panic!("{answer:?}") };
        prop_assert_eq!(stdout, args.join(" "));
    }
}
