//! Clients of instances that do not do as they should.

use super::*;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

/// A place for sockets that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nrw-client-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn client(&self) -> Client {
        Client::at(self.socket())
    }

    fn socket(&self) -> PathBuf {
        place::file(&self.0, &["a".into(), "b".into()], place::SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An instance that says `says` to each client, again and again.
fn says(folder: &Folder, says: &'static str, ask: impl FnOnce() + Send) {
    let listener = UnixListener::bind(folder.socket()).unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(ask);
        let mut clients = Vec::new();
        while !asking.is_finished() {
            clients.extend(listener.accept().map(|(stream, _)| stream));
            // A client that has left needs no answer.
            clients.iter_mut().for_each(|stream| drop(stream.write_all(says.as_bytes())));
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn an_instance_that_works_for_ever_holds_no_question_and_no_batch() {
    let folder = Folder::new("ever");
    let time = Duration::from_millis(300);
    let own = std::process::id() as i32;
    says(&folder, "{\"working\":{\"line\":7}}\n", || {
        let begin = Instant::now();
        let answer = folder.client().ask_within(&Request::ShowWithTrees, "", time);
        let Err(ControlError::Silent { pid, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(*pid, Some(own));
        let (options, name) = (Vec::new(), "-".to_owned());
        let batch = Request::Batch { options, name, bytes: 1, names: None };
        let answer = folder.client().ask_within(&batch, "\n", time);
        assert!(matches!(answer, Err(ControlError::SilentBatch { line: 7, .. })), "{answer:?}");
        assert!(begin.elapsed() < ANSWER_TIME, "{:?}", begin.elapsed());
    });
}

#[test]
fn an_instance_that_does_not_answer_runs_all_the_same() {
    let folder = Folder::new("stopped");
    // It accepts nobody, as if it were stopped.
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let client = folder.client();
    let time = Duration::from_millis(200);
    let error = client.ask_within(&Request::Ports, "", time).unwrap_err().to_string();
    let own = format!("narrows runs here (process {}), and has not", std::process::id());
    assert!(error.contains(&own), "{error}");
    assert!(!error.contains("start one"), "{error}");
    // So many wait that the kernel takes no more: nobody knows the process then.
    let waiting: Vec<_> = (0..500)
        .map_while(|_| client.ask_within(&Request::Ports, "", Duration::ZERO).err())
        .collect();
    assert!(
        waiting.iter().all(|error| matches!(error, ControlError::Silent { .. })),
        "{waiting:?}"
    );
    drop(listener);
    let (found, silent) = Client::among([folder.socket()].into_iter(), None);
    assert!(found.is_empty() && silent.is_empty(), "it was killed: {silent:?}");
    let (found, silent) = Client::among([folder.socket()].into_iter(), Some("other"));
    assert!(found.is_empty() && silent.is_empty());
}

#[test]
fn a_client_asks_the_process_that_it_is_sent_to() {
    let folder = Folder::new("sent");
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            for answer in [Answer::Moved, Answer::Refused("heard".to_owned())] {
                let (mut stream, _) = listener.accept().unwrap();
                serde_json::to_writer(&mut stream, &answer).unwrap();
                stream.write_all(b"\n").unwrap();
                // Its request stays unread, as if the process ended.
            }
        });
        folder.client().ask(&Request::Ports).unwrap()
    });
    assert!(matches!(said, Answer::Refused(why) if why == "heard"));
}

#[test]
fn a_missing_instance_is_an_error_that_names_the_socket() {
    let folder = Folder::new("nobody");
    let error = folder.client().ask(&Request::Show).unwrap_err().to_string();
    assert!(error.contains("a,b.sock"), "{error}");
}
