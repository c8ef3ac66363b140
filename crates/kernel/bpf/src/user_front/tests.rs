//! A user's program, run on frames without a port.

use super::*;
use crate::attach::{Hook, XdpMode};
use crate::test_run::{DROP, PASS, TX, test_run};
use crate::tree::Tree;
use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::{MapCore, MapFlags};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// What each begins with: a frame's first byte is the verdict that it asks for.
const HEAD: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
char LICENSE[] SEC("license") = "GPL";
static __always_inline int asked(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	return (void *)(data + 1) > (void *)(long)ctx->data_end ? XDP_ABORTED : *data;
}
"#;
const ASKED: &str = "SEC(\"xdp\") int verdict(struct xdp_md *ctx) { return asked(ctx); }";

/// An object of `source`, which is removed with it.
struct Compiled(PathBuf);

impl Drop for Compiled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn compiled(name: &str, source: &str, arguments: &[&str]) -> Compiled {
    let place = std::env::temp_dir().join(format!("nrw-{}-{name}", std::process::id()));
    let (file, object) = (place.with_extension("bpf.c"), place.with_extension("o"));
    std::fs::write(&file, format!("{HEAD}{source}")).unwrap();
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let built = SkeletonBuilder::new()
        .source(&file)
        .obj(&object)
        .clang_args([&[headers.as_str()], arguments].concat())
        .build();
    std::fs::remove_file(&file).unwrap();
    built.unwrap();
    Compiled(object)
}

/// An object with a map, without types.
fn untyped() -> Compiled {
    let object = std::env::temp_dir().join(format!("nrw-{}-untyped.o", std::process::id()));
    let source = "struct { int (*type)[2]; } some_map __attribute__((section(\".maps\"), used));\n\
                  __attribute__((section(\"xdp\"), used)) int drop(void *ctx) { return 1; }\n";
    let mut clang = Command::new("clang")
        .args(["-O2", "-target", "bpf", "-x", "c", "-", "-c", "-o"])
        .arg(&object)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    clang.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(clang.wait().unwrap().success());
    Compiled(object)
}

/// It, loaded; `None`, and a line with the reason, where nothing can be loaded.
fn loaded(name: &str, source: &str) -> Option<UserFront> {
    let object = compiled(name, source, &[]);
    match UserFront::load(&object.0, None, Entry::Own) {
        Err(UserFrontError::Load(LoadError::NotPermitted)) => {
            println!("SKIPPED: loading BPF programs needs root");
            None
        }
        loaded => Some(loaded.unwrap()),
    }
}

/// What becomes of a frame with this first byte.
fn run(program: &FirstProgram, first: u8) -> u32 {
    let mut frame = [0; 64];
    frame[0] = first;
    test_run(program.program(), &frame, 1).unwrap().verdict
}

fn counted(front: &UserFront) -> Vec<(&'static str, u64)> {
    let all = front.verdicts().unwrap().into_iter();
    let occurred = all.filter(|(_, judged)| judged.packets > 0);
    occurred
        .map(|(verdict, judged)| {
            assert_eq!(judged.bytes, judged.packets * 64);
            (verdict.name(), judged.packets)
        })
        .collect()
}

/// A program that drops all frames: a tree without a plan.
fn dropping(multi_buffer: bool, entry: Entry) -> Tree {
    Tree::load(MAC, multi_buffer, entry, Hook::Xdp(XdpMode::Native)).unwrap()
}

#[test]
fn its_verdicts_are_final_but_pass_and_all_are_counted() {
    let Some(front) = loaded("verdicts", ASKED) else { return };
    let program = front.for_port(false, Entry::Own).unwrap();
    // Nothing is behind it yet.
    for verdict in 0..=4 {
        assert_eq!(run(&program, verdict), u32::from(verdict));
    }
    let behind = dropping(false, Entry::Own);
    program.lead_to(behind.program()).unwrap();
    assert_eq!(run(&program, 2), DROP, "what it passes goes on");
    assert_eq!((run(&program, 3), run(&program, 77)), (TX, 77));
    let all =
        [("aborted", 1), ("drop", 1), ("pass", 2), ("tx", 2), ("redirect", 1), ("invalid", 1)];
    assert_eq!(counted(&front), all);
}

#[test]
fn it_goes_on_in_another_process_with_its_counts_and_its_variables() {
    let source = "int seen; SEC(\"xdp\") int first_passes(struct xdp_md *ctx)\n\
                  { return seen++ ? XDP_DROP : XDP_PASS; }";
    let Some(front) = loaded("inherited", source) else { return };
    assert_eq!(run(&front.for_port(false, Entry::Own).unwrap(), 0), PASS);
    let descriptors = front.descriptors().unwrap();
    drop(front);
    let front = UserFront::inherit(descriptors, false).unwrap();
    assert_eq!(run(&front.for_port(false, Entry::Own).unwrap(), 0), DROP);
    assert_eq!(counted(&front), [("drop", 1), ("pass", 1)]);
    let none = UserFront::inherit(Vec::new(), false);
    assert!(matches!(none, Err(UserFrontError::Inherited)));
}

#[test]
fn frames_in_several_buffers_are_for_programs_that_say_so() {
    let Some(one) = loaded("one", ASKED) else { return };
    assert!(matches!(one.for_port(true, Entry::Own), Err(UserFrontError::OneBuffer)));
    assert!(!one.is_multi_buffer());
    let frags = ASKED.replace("\"xdp\"", "\"xdp.frags\"");
    let several = loaded("several", &frags).unwrap();
    assert!(several.is_multi_buffer());
    let program = several.for_port(true, Entry::Own).unwrap();
    let behind = dropping(true, Entry::Own);
    program.lead_to(behind.program()).unwrap();
    assert_eq!((run(&program, 2), run(&program, 3)), (DROP, TX));
}

#[test]
fn behind_a_gate_it_is_first_of_what_is_behind() {
    let frags = ASKED.replace("\"xdp\"", "\"xdp.frags\"");
    for (source, multi_buffer) in [(ASKED, false), (&frags, true)] {
        let object = compiled("shared", source, &[]);
        let front = match UserFront::load(&object.0, None, Entry::Shared) {
            Err(UserFrontError::Load(LoadError::NotPermitted)) => return,
            front => front.unwrap(),
        };
        let mut behind = dropping(multi_buffer, Entry::Shared);
        behind.run_first(&front).unwrap();
        let (gate, array) = crate::gate::tests::gate().unwrap();
        behind.take_over(array).unwrap();
        let run = |first| {
            let mut frame = [0; 64];
            frame[0] = first;
            test_run(gate.as_fd(), &frame, 1).unwrap().verdict
        };
        assert_eq!((run(2), run(3)), (DROP, TX));
        behind.detach();
        assert_eq!((run(1), run(3)), (PASS, PASS));
        assert!(matches!(front.for_port(multi_buffer, Entry::Tcx), Err(UserFrontError::NoXdp)));
    }
}

#[test]
fn it_may_move_data_call_functions_and_end_in_another_program_by_a_tail_call() {
    let source = r#"
        SEC("xdp") int cut(struct xdp_md *ctx)
        { return bpf_xdp_adjust_head(ctx, 14) ? XDP_ABORTED : XDP_TX; }
        struct {
            __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
            __uint(max_entries, 2);
            __type(key, __u32);
            __array(values, int (void *));
        } next SEC(".maps") = { .values = { [1] = (void *)&cut } };
        __noinline int which(struct xdp_md *ctx) { return asked(ctx) == 1; }
        SEC("xdp") int first(struct xdp_md *ctx)
        { bpf_tail_call(ctx, &next, which(ctx)); return XDP_DROP; }
    "#;
    let object = compiled("tail", source, &[]);
    let front = match UserFront::load(&object.0, Some("first"), Entry::Own) {
        Err(UserFrontError::Load(LoadError::NotPermitted)) => return,
        front => front.unwrap(),
    };
    let program = front.for_port(false, Entry::Own).unwrap();
    let mut frame = [0; 64];
    (frame[0], frame[14]) = (1, 9);
    let ran = test_run(program.program(), &frame, 1).unwrap();
    assert_eq!((ran.verdict, ran.frame[0]), (TX, 9));
    assert_eq!(run(&program, 0), DROP);
    assert_eq!(counted(&front), [("drop", 1), ("tx", 1)]);
}

#[test]
fn its_maps_are_found_by_name_and_what_is_written_there_counts() {
    let source = r#"
        struct {
            __uint(type, BPF_MAP_TYPE_ARRAY);
            __uint(max_entries, 1);
            __type(key, __u32);
            __type(value, __u32);
        } nrw_tested_map SEC(".maps");
        SEC("xdp") int as_told(struct xdp_md *ctx)
        {
            __u32 zero = 0, *told = bpf_map_lookup_elem(&nrw_tested_map, &zero);
            return told ? *told : XDP_ABORTED;
        }
    "#;
    let Some(front) = loaded("maps", source) else { return };
    let program = front.for_port(false, Entry::Own).unwrap();
    assert_eq!(run(&program, 0), 0);
    let mut all = libbpf_rs::query::MapInfoIter::default();
    let found = all.find(|info| info.name.to_string_lossy() == "nrw_tested_map").unwrap();
    let map = MapHandle::from_map_id(found.id).unwrap();
    map.update(&[0; 4], &1_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    assert_eq!(run(&program, 0), DROP);
}

#[test]
fn what_is_no_such_program_is_refused_with_what_to_do() {
    let said = |file: &Path, wanted: Option<&str>| {
        UserFront::load(file, wanted, Entry::Own).err().expect("it is refused").to_string()
    };
    assert!(said(Path::new("/nonexistent.o"), None).contains("cannot be read: No such file"));
    assert!(said(Path::new("/"), None).contains("cannot be read"));
    assert!(said(Path::new("/dev/zero"), None).contains("longer than 16 MiB"));
    let own = std::env::current_exe().unwrap();
    for no_object in [Path::new("/dev/null"), Path::new("/proc/version"), &own] {
        let why = said(no_object, None);
        assert!(why.contains("no BPF object") || why.contains("longer"), "{why}");
    }
    let untyped = untyped();
    assert!(said(&untyped.0, None).contains("clang -g"), "{}", said(&untyped.0, None));
    let other = compiled("other", "SEC(\"tc\") int shape(void *skb) { return 0; }", &[]);
    assert!(said(&other.0, None).contains("mark one with SEC(\"xdp\")"));
    let both = format!("{ASKED} SEC(\"xdp.frags\") int b(struct xdp_md *ctx) {{ return 2; }}");
    let both = compiled("both", &both, &[]);
    assert!(said(&both.0, None).ends_with("name one behind a colon, as FILE:verdict"));
    assert!(said(&both.0, Some("c")).ends_with("no XDP program \"c\": it has verdict, b"));
    if loaded("root", ASKED).is_none() {
        return;
    }
    let outside =
        "SEC(\"xdp\") int outside(struct xdp_md *ctx) { return *(char *)(long)ctx->data; }";
    let outside = said(&compiled("outside", outside, &[]).0, None);
    assert!(outside.contains("verifier refuses it:\n") && outside.contains("packet"), "{outside}");
    let missing = "void none(void) __ksym; SEC(\"xdp\") int calls(struct xdp_md *ctx)\n\
                   { none(); return 2; }";
    let missing = said(&compiled("missing", missing, &[]).0, None);
    assert!(missing.contains("no none"), "{missing}");
}
