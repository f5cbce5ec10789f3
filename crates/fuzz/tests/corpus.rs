//! Every input that was kept goes through its target, without a fuzzer.

use handfast_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The names in a directory, or of a kind of file in it.
fn names(directory: PathBuf) -> BTreeSet<String> {
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

struct Removed(&'static Path);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

#[test]
fn what_was_kept_does_what_it_should() {
    let _removed = Removed(handfast_fuzz::directory());
    for (name, target) in TARGETS {
        let of_target = corpus().join(name);
        let inputs = names(of_target.clone());
        println!("{name}: {} inputs", inputs.len());
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for input in inputs {
            // Seen where it does not.
            println!("  {input}");
            target(&fs::read(of_target.join(input)).unwrap());
        }
    }
}

#[test]
fn each_target_has_a_fuzzer_and_a_corpus_and_no_corpus_is_nobodys() {
    let expected: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(corpus()), expected);
    let fuzzers = names(corpus().join("../fuzz_targets"));
    let expected = expected.iter().map(|name| format!("{name}.rs"));
    assert_eq!(fuzzers, expected.collect());
}

/// Small enough to be kept with the code, and gone through each time.
#[test]
fn the_corpus_stays_small() {
    for (name, _) in TARGETS {
        let of_target = corpus().join(name);
        let sizes = names(of_target.clone()).into_iter();
        let sizes = sizes.map(|input| fs::metadata(of_target.join(input)).unwrap().len());
        let (count, bytes) = sizes.fold((0, 0), |(count, all), bytes| (count + 1, all + bytes));
        assert!(
            count <= 400 && bytes <= 150_000,
            "{name}: {count} inputs of {bytes} bytes"
        );
    }
}
