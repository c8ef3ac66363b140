//! The policies in `examples/policies` are valid.

use narrows_tc::{OfflineHost, load, save};
use std::path::Path;

#[test]
fn every_example_policy_is_accepted_and_saved_without_loss() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/policies");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let host = OfflineHost::default();
        let policy = load(&text, &name, &host).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let again = load(&save(&policy), "saved", &host).expect("what was saved is accepted");
        assert!(again == policy, "{name} is saved as something else");
        count += 1;
    }
    assert!(count > 0, "no policy in {}", folder.display());
}
