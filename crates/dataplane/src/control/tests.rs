use super::*;
use proptest::prelude::*;
use std::net::Shutdown;
use std::thread;

/// An instance's answers, of which each names the request.
fn echo(request: Request) -> Answer {
    match request {
        Request::Ports => Answer::Ports(vec!["a".into(), "b".into()]),
        Request::Tc { args } => {
            Answer::Tc { stdout: args.join(" "), stderr: String::new(), code: 0 }
        }
        other => Answer::Refused(format!("{other:?}")),
    }
}

/// What an instance says to somebody who writes `bytes` and no more.
fn answer_to(bytes: &[u8]) -> Vec<u8> {
    let (client, server) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Whoever writes too much is not listened to until its end.
            let _ = (&client).write_all(bytes);
            let _ = client.shutdown(Shutdown::Write);
        });
        let _ = converse(&server, &mut echo);
        drop(server);
    });
    let mut said = Vec::new();
    // Writing to somebody who has gone shows as an error after what was said.
    let _ = (&client).read_to_end(&mut said);
    said
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
        Client { path: self.socket(), ports: Vec::new() }
    }

    fn socket(&self) -> PathBuf {
        self.0.join("a,b.sock")
    }

    fn open(&self) -> Result<ControlServer, ControlError> {
        ControlServer::open_at(self.socket())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Has `server` serve whoever comes while `ask` asks.
fn serving<T: Send>(server: &ControlServer, ask: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            server.serve(echo);
            thread::sleep(Duration::from_millis(1));
        }
        asking.join().unwrap()
    })
}

#[test]
fn a_request_is_answered() {
    let folder = Folder::new("answered");
    let server = folder.open().unwrap();
    let args = vec!["qdisc".to_owned(), "show".to_owned()];
    let answer = serving(&server, || folder.client().ask(&Request::Tc { args })).unwrap();
    assert!(matches!(answer, Answer::Tc { stdout, .. } if stdout == "qdisc show"));
}

#[test]
fn only_the_owner_can_reach_the_socket() {
    let folder = Folder::new("owner");
    let _server = folder.open().unwrap();
    assert_eq!(std::fs::metadata(folder.socket()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn root_and_the_owner_may_ask_and_nobody_else() {
    let [root, owner, other] = [0, 1000, 1001].map(Uid::from_raw);
    assert!(may_ask(root, owner) && may_ask(owner, owner) && may_ask(root, root));
    assert!(!may_ask(other, owner) && !may_ask(owner, root));
}

#[test]
fn nonsense_is_refused() {
    for bytes in
        [&b""[..], b"\n", b"GET / HTTP/1.1\r\n\r\n", b"{\"tc\":{}}\n", b"\xff\x00\n", b"[[[["]
    {
        let said = answer_to(bytes);
        let answer: Answer = serde_json::from_slice(&said).unwrap();
        let refused = matches!(&answer, Answer::Refused(why) if why.starts_with("not a request"));
        assert!(refused, "{bytes:?}: {answer:?}");
    }
}

#[test]
fn a_line_without_end_is_cut_off() {
    let begin = Instant::now();
    let said = answer_to(&vec![b'x'; MESSAGE_MAX as usize + (1 << 20)]);
    assert!(String::from_utf8_lossy(&said).contains("refused") || said.is_empty());
    // On a machine where even this takes long, time is the bound instead.
    assert!(begin.elapsed() < SERVING_TIME + Duration::from_secs(9));
}

#[test]
fn whoever_says_nothing_or_little_holds_up_others_for_a_bounded_time() {
    let folder = Folder::new("silent");
    let server = folder.open().unwrap();
    let silent = UnixStream::connect(folder.socket()).unwrap();
    let begin = Instant::now();
    server.serve(echo);
    assert!(begin.elapsed() >= SERVING_TIME / 2);
    // A byte now and then does not buy more time.
    let slow = UnixStream::connect(folder.socket()).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while (&slow).write_all(b" ").is_ok() {
                thread::sleep(SERVING_TIME / 20);
            }
        });
        server.serve(echo);
    });
    assert!(begin.elapsed() < SERVING_TIME + Duration::from_secs(9));
    drop(silent);
    assert!(matches!(
        serving(&server, || folder.client().ask(&Request::Ports)),
        Ok(Answer::Ports(_))
    ));
}

#[test]
fn a_socket_that_nobody_serves_is_replaced_and_one_that_is_served_is_not() {
    let folder = Folder::new("stale");
    // As a process leaves it that was killed: bound, and nobody there.
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let server = folder.open().unwrap();
    assert!(matches!(folder.open(), Err(ControlError::Taken(path)) if path == folder.socket()));
    assert!(serving(&server, || folder.client().ask(&Request::Ports)).is_ok());
    drop(server);
    assert!(!folder.socket().exists());
}

#[test]
fn nobody_there_is_an_error_that_names_the_socket() {
    let folder = Folder::new("nobody");
    let error = folder.client().ask(&Request::Show).unwrap_err().to_string();
    assert!(error.contains("a,b.sock"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let said = answer_to(&bytes);
        prop_assert!(serde_json::from_slice::<Answer>(&said).is_ok());
    }

    #[test]
    fn any_words_arrive_as_they_were(args in prop::collection::vec(any::<String>(), 0..8)) {
        let request = serde_json::to_vec(&Request::Tc { args: args.clone() }).unwrap();
        let answer: Answer = serde_json::from_slice(&answer_to(&request)).unwrap();
        let Answer::Tc { stdout, .. } = answer else { panic!("{answer:?}") };
        prop_assert_eq!(stdout, args.join(" "));
    }
}
