//! The state of a process that is taken over from: any bytes are read without a panic, and valid
//! state survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_dataplane::upgrade::state::{Contents, Manifest};

fuzz_target!(|data: &[u8]| {
    if let Ok(contents) = Contents::read(data) {
        let again = Contents::read(&contents.write()).expect("what was written is read");
        assert_eq!(again, contents);
        for worker in &contents.workers {
            let _ = worker.fits(0, 64, 2048);
        }
    }
    let _ = serde_json::from_slice::<Manifest>(data);
});
