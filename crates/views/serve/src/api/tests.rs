//! The API over a store and an instance that a test holds.

use super::request::ROUTES;
use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const WRITER: &str = "w-0123456789abcdef0123456789abcdef";
const READER: &str = "r-0123456789abcdef0123456789abcdef";

/// An API with a store of its own, and an instance that takes changes, or refuses.
struct Served {
    api: Arc<Api>,
    folder: PathBuf,
    refuses: Arc<AtomicBool>,
    applied: Arc<AtomicUsize>,
}

impl Served {
    fn new() -> Self {
        Self::with_tokens(&format!("write {WRITER}\nread {READER}\n"))
    }

    fn with_tokens(tokens: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nrw-api-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = (!tokens.is_empty()).then(|| {
            let file = folder.join("tokens");
            std::fs::write(&file, tokens).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, private).unwrap();
            Tokens::read(&file).unwrap()
        });
        let (refuses, applied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (refusing, applying) = (Arc::clone(&refuses), Arc::clone(&applied));
        let apply = Apply::new(move |_| {
            if refusing.load(Ordering::SeqCst) {
                return Err("no port eth9".to_owned());
            }
            applying.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let store = folder.join("directory.sqlite");
        let api = Api::new(ApiOptions { store, tokens, apply }).unwrap();
        Self { api, folder, refuses, applied }
    }

    /// Status, headers and body of the answer to `METHOD PATH`, with headers and a body.
    fn ask(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> (u16, HeaderMap, Value) {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(format!("{PREFIX}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let answer = Arc::clone(&self.api).answer(request).await;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).expect("all answers are JSON");
            (head.status.as_u16(), head.headers, body)
        })
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.ask(&format!("GET {path}"), &[], "");
        (status, body)
    }

    /// With the token of somebody who may write.
    fn write(&self, line: &str, more: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let token = format!("Bearer {WRITER}");
        let mut headers =
            vec![("authorization", token.as_str()), ("content-type", "application/json")];
        headers.extend(more);
        let (status, _, body) = self.ask(line, &headers, body.to_string());
        (status, body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Best effort: it is in the folder for temporary files.
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

fn ann() -> Value {
    json!({
        "name": "Ann Smith",
        "site": null,
        "plan": {"name": "Home", "assured": [0, 0], "ceiling": [50_000_000, 10_000_000],
                 "queueing": ["cake", "cake"]},
        "addresses": ["10.0.0.1", "2001:db8::/56"],
        "labels": {"phone": "555"}
    })
}

fn small(address: &str) -> Value {
    json!({"plan": {"ceiling": [1_000_000, 1_000_000]}, "addresses": [address]})
}

#[test]
fn a_subscriber_is_put_read_changed_and_removed() {
    let served = Served::new();
    let (status, done) = served.write("PUT subscribers/1042", &[], &ann());
    assert_eq!((status, done["revision"].as_u64()), (201, Some(1)), "{done}");
    assert_eq!(served.get("subscribers/1042"), (200, ann()));
    // The same again changes nothing, and needs nothing of the instance.
    let (status, done) = served.write("PUT subscribers/1042", &[], &ann());
    assert_eq!((status, done["revision"].as_u64()), (200, Some(1)));
    assert_eq!(done["summary"], "nothing changes");
    assert_eq!(served.applied.load(Ordering::SeqCst), 1);
    let mut faster = ann();
    faster["plan"]["ceiling"] = json!([100_000_000, 20_000_000]);
    let (_, done) = served.write("PUT subscribers/1042", &[], &faster);
    let said = done["changes"][0].as_str().unwrap();
    assert!(said.starts_with("subscriber 1042 (Ann Smith): plan"), "{said}");
    let gone = served.write("DELETE subscribers/1042", &[], &Value::Null);
    assert_eq!((gone.0, gone.1["revision"].as_u64()), (200, Some(3)));
    assert_eq!(served.get("subscribers/1042").0, 404);
    // Removing nobody changes nothing.
    let again = served.write("DELETE subscribers/1042", &[], &Value::Null);
    assert_eq!((again.0, again.1["revision"].as_u64()), (200, Some(3)));
}

#[test]
fn an_identity_may_have_any_letters() {
    let served = Served::new();
    let path = "subscribers/No.%2017%2F4%20%C3%A9";
    assert_eq!(served.write(&format!("PUT {path}"), &[], &small("10.0.0.1")).0, 201);
    assert_eq!(served.get(path).0, 200);
    let (_, list) = served.get("subscribers");
    assert!(list["items"].as_object().unwrap().contains_key("No. 17/4 é"), "{list}");
    for bad in ["subscribers/%FF", "subscribers/a%0Ab", "subscribers/"] {
        assert_eq!(served.get(bad).0, 400, "{bad}");
    }
}

#[test]
fn without_a_token_that_may_write_nothing_is_written() {
    let served = Served::new();
    let kind = ("content-type", "application/json");
    let put = |token: &str| {
        let authorization = ("authorization", token);
        let headers = if token.is_empty() { vec![kind] } else { vec![authorization, kind] };
        served.ask("PUT subscribers/1", &headers, ann().to_string())
    };
    let (status, headers, _) = put("");
    assert_eq!(status, 401);
    assert!(headers[header::WWW_AUTHENTICATE].to_str().unwrap().starts_with("Bearer"));
    assert_eq!(put("Bearer nobody").0, 401);
    assert_eq!(put("Basic YTpi").0, 401);
    let reader = format!("Bearer {READER}");
    assert_eq!(put(&reader).0, 403);
    // A dry run changes nothing, so whoever may read may do it.
    let headers = [("authorization", reader.as_str()), kind];
    assert_eq!(served.ask("PUT directory?dry-run=true", &headers, "{}").0, 200);
    // Who has no token hears of nothing else.
    assert_eq!(served.ask("PUT subscribers/1", &[("if-match", "x")], "{").0, 401);
    assert_eq!(served.get("subscribers/1").0, 404);
    // A token that nobody knows does not read, either.
    assert_eq!(served.ask("GET subscribers", &[("authorization", "Bearer x")], "").0, 401);
    let read_only = Served::with_tokens("");
    let authorization = format!("Bearer {WRITER}");
    let headers = [("authorization", authorization.as_str()), kind];
    assert_eq!(read_only.ask("PUT subscribers/1", &headers, ann().to_string()).0, 401);
    let (status, _, said) = read_only.ask("PUT subscribers/1", &[kind], ann().to_string());
    assert_eq!(status, 403);
    assert!(said["error"].as_str().unwrap().contains("--write-tokens"));
    // It does not even make a store.
    assert_eq!(read_only.get("subscribers").0, 404);
    assert!(!read_only.folder.join("directory.sqlite").exists());
}

#[test]
fn if_the_instance_refuses_the_store_is_as_it_was() {
    let served = Served::new();
    served.write("PUT sites/north", &[], &json!({"name": "North"}));
    served.write("PUT subscribers/1", &[], &ann());
    let before = served.get("directory");
    served.refuses.store(true, Ordering::SeqCst);
    let mut moved = ann();
    moved["site"] = json!("north");
    for (line, body) in [
        ("PUT subscribers/1", moved),
        ("PUT subscribers/2", small("10.0.0.2")),
        ("DELETE subscribers/1", Value::Null),
        ("PUT directory?max-removed=100", json!({"subscribers": {"9": small("10.0.0.9")}})),
    ] {
        let (status, said) = served.write(line, &[], &body);
        assert_eq!(status, 502, "{line}: {said}");
        assert!(said["error"].as_str().unwrap().contains("no port eth9"), "{said}");
        assert_eq!(served.get("directory"), before, "{line}");
    }
    served.refuses.store(false, Ordering::SeqCst);
    assert_eq!(served.write("DELETE subscribers/1", &[], &Value::Null).0, 200);
}

#[test]
fn a_write_can_depend_on_the_revision_or_on_who_is_there() {
    let served = Served::new();
    let put = |more: &[(&str, &str)]| served.write("PUT subscribers/1", more, &ann()).0;
    assert_eq!(put(&[("if-match", "*")]), 412);
    assert_eq!(put(&[("if-match", "\"7\"")]), 412);
    assert_eq!(put(&[("if-none-match", "*")]), 201);
    assert_eq!(put(&[("if-none-match", "*")]), 412);
    let (_, headers, _) = served.ask("GET subscribers/1", &[], "");
    assert_eq!(headers[header::ETAG], "\"1\"");
    assert_eq!(put(&[("if-match", "\"1\"")]), 200);
    assert_eq!(put(&[("if-match", "1")]), 400);
    assert_eq!(put(&[("if-none-match", "\"1\"")]), 400);
}

#[test]
fn a_list_comes_in_parts_and_can_be_searched() {
    let served = Served::new();
    let mut all = json!({"sites": {"n": {"name": "North"}}, "subscribers": {}});
    for number in 0..25 {
        let mut subscriber = small(&format!("10.0.1.{number}"));
        subscriber["name"] = json!(format!("Name {number}"));
        all["subscribers"][format!("id-{number:02}")] = subscriber;
    }
    assert_eq!(served.write("PUT directory", &[], &all).0, 200);
    let (mut path, mut seen) = ("subscribers?limit=10".to_owned(), Vec::new());
    loop {
        let (status, page) = served.get(&path);
        assert_eq!(status, 200);
        seen.extend(page["items"].as_object().unwrap().keys().cloned());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("subscribers?limit=10&after={next}");
    }
    assert_eq!(seen, (0..25).map(|number| format!("id-{number:02}")).collect::<Vec<_>>());
    let found = |word: &str| {
        let (_, page) = served.get(&format!("subscribers?search={word}"));
        page["items"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(found("ID-07"), ["id-07"]);
    assert_eq!(found("name+24"), ["id-24"]);
    assert_eq!(found("10.0.1.13"), ["id-13"]);
    assert!(found("nobody").is_empty());
    assert_eq!(served.get("sites").1["items"]["n"]["name"], "North");
    for bad in ["limit=0", "limit=1001", "limit=x", "limits=5", "dry-run=true"] {
        assert_eq!(served.get(&format!("subscribers?{bad}")).0, 400, "{bad}");
    }
}

#[test]
fn a_whole_directory_is_all_that_the_api_has_and_too_much_does_not_go() {
    let served = Served::new();
    // What another source has said stays.
    let mut other = Store::open(&served.folder.join("directory.sqlite")).unwrap();
    let their = serde_json::from_value(small("10.9.9.9")).unwrap();
    other.upsert("csv", "theirs", their).unwrap();
    let mut all = json!({"subscribers": {}});
    for number in 0..10 {
        all["subscribers"][number.to_string()] = small(&format!("10.0.0.{}", number + 1));
    }
    let (status, done) = served.write("PUT directory?dry-run=true", &[], &all);
    assert_eq!((status, done["changes"].as_array().unwrap().len()), (200, 10));
    assert_eq!(served.get("subscribers/5").0, 404, "a dry run changes nothing");
    assert_eq!(served.write("PUT directory", &[], &all).0, 200);
    let mut half = all.clone();
    for number in 0..5 {
        half["subscribers"].as_object_mut().unwrap().remove(&number.to_string());
    }
    let (status, said) = served.write("PUT directory", &[], &half);
    assert_eq!(status, 409);
    assert!(said["error"].as_str().unwrap().contains("max-removed=50"), "{said}");
    assert_eq!(served.write("PUT directory?max-removed=50", &[], &half).0, 200);
    let (_, directory) = served.get("directory");
    assert_eq!(directory["subscribers"].as_object().unwrap().len(), 6);
    // And is not for the API to change.
    let (status, said) = served.write("PUT subscribers/theirs", &[], &small("10.0.0.99"));
    assert_eq!(status, 409);
    assert!(said["error"].as_str().unwrap().contains("csv"), "{said}");
    assert_eq!(served.write("DELETE subscribers/theirs", &[], &Value::Null).0, 409);
}

#[test]
fn what_is_not_sound_is_refused_with_a_reason() {
    let served = Served::new();
    served.write("PUT sites/n", &[], &json!({}));
    let mut here = small("10.0.0.1");
    here["site"] = json!("n");
    served.write("PUT subscribers/1", &[], &here);
    let with = |line: &str, body: Value, status: u16| {
        let (got, said) = served.write(line, &[], &body);
        assert_eq!(got, status, "{line} {body}: {said}");
        assert!(said["error"].as_str().unwrap().len() > 10);
    };
    with("PUT subscribers/2", small("10.0.0.1"), 409);
    with("PUT subscribers/2", json!({}), 422);
    with("PUT subscribers/2", json!({"speed": 5}), 400);
    with("PUT subscribers/2", json!({"addresses": ["10.0.0"]}), 400);
    with("PUT subscribers/2", json!([]), 400);
    with("PUT sites/n", json!({"parent": "n"}), 422);
    with("PUT sites/m", json!({"capacity": [0, 0]}), 422);
    with("DELETE sites/n", Value::Null, 422);
    with("PUT directory", json!({"subscribers": {"a\nb": small("10.0.0.7")}}), 422);
}

#[test]
fn a_body_is_json_and_has_a_limit() {
    let served = Served::new();
    let token = format!("Bearer {WRITER}");
    let ask = |kind: &str, body: Vec<u8>| {
        let headers = [("authorization", token.as_str()), ("content-type", kind)];
        served.ask("PUT subscribers/1", &headers, body).0
    };
    assert_eq!(ask("text/plain", b"{}".to_vec()), 415);
    assert_eq!(ask("application/json; charset=utf-8", b"{".to_vec()), 400);
    assert_eq!(ask("application/json", vec![b' '; ONE_MAX + 1]), 413);
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
    ];
    let (status, _, said) = served.ask("PUT subscribers/1", &headers, "{}");
    assert_eq!(status, 415);
    assert!(said["error"].as_str().unwrap().contains("without Content-Encoding"), "{said}");
}

#[test]
fn a_path_or_method_that_is_not_there_is_answered_with_those_that_are() {
    let served = Served::new();
    for path in ["", "nothing", "sites/a/b", "directory/x"] {
        let (status, said) = served.get(path);
        assert_eq!(status, 404, "{path}");
        assert!(said["error"].as_str().unwrap().contains("/api/v1/subscribers/{id}"));
    }
    let (status, headers, said) = served.ask("POST subscribers", &[], "");
    assert!(said["error"].as_str().unwrap().contains("PUT it at its identity"), "{said}");
    assert_eq!((status, &headers[header::ALLOW]), (405, &HeaderValue::from_static("GET")));
    let (_, headers, _) = served.ask("PATCH sites/1", &[], "");
    assert_eq!(headers[header::ALLOW], "GET, PUT, DELETE");
}

#[test]
fn the_description_has_all_paths_and_methods_and_no_others() {
    let description = Served::new().get("openapi.json").1;
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            let methods = methods.filter(|method| *method != "parameters");
            methods.map(move |method| (path[1..].to_owned(), method.to_uppercase()))
        })
        .collect();
    let served = ROUTES.iter().flat_map(|(path, methods)| {
        methods.iter().map(|method| ((*path).to_owned(), (*method).to_owned()))
    });
    assert_eq!(described, served.collect());
    // All that it refers to is there.
    let text = description.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(description.pointer(pointer).is_some(), "{pointer}");
    }
    // What the store writes, the schema allows.
    let known = |schema: &str| {
        let members = &description["components"]["schemas"][schema]["properties"];
        members.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>()
    };
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let subscriber = serde_json::to_value(narrows_store::Subscriber::default()).unwrap();
    assert_eq!(known("Subscriber"), keys(&subscriber));
    assert_eq!(known("Plan"), keys(&subscriber["plan"]));
    let site = serde_json::to_value(narrows_store::Site::default()).unwrap();
    assert_eq!(known("Site"), keys(&site));
}
