//! The smallest XDP program, compiled when needed.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const SOURCE: &str = r#"
__attribute__((section("xdp"), used)) int pass(void *ctx) { return 2; }
__attribute__((section("license"), used)) char _license[] = "GPL";
"#;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An object file with one program in section `xdp` that passes every frame.
pub struct PassAll(PathBuf);

impl PassAll {
    /// Compiles it; none, with a message, without clang.
    pub fn compile() -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let stem = format!("nrw-link-{}-{number}", std::process::id());
        let source = std::env::temp_dir().join(format!("{stem}.c"));
        let object = Self(source.with_extension("o"));
        fs::write(&source, SOURCE).expect("source written");
        let clang = Command::new("clang")
            .args(["-O2", "-target", "bpf", "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object.0)
            .output();
        let _ = fs::remove_file(&source);
        let output = match clang {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("SKIPPED: compiling an XDP program needs clang (`apt install clang`)");
                return None;
            }
            Err(error) => panic!("running clang: {error}"),
        };
        assert!(output.status.success(), "clang: {}", String::from_utf8_lossy(&output.stderr));
        Some(object)
    }

    pub fn object(&self) -> impl std::fmt::Display + '_ {
        self.0.display()
    }
}

impl Drop for PassAll {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
