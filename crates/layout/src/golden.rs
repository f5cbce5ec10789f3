//! Messages and their bytes, as `spec/` has them for other implementations.

/// Compares a file of lines, *what is said: bytes in hexadecimal*, with what this crate says. Lines that begin with `#` are comments.
pub(crate) fn compare(file: &str, said: impl IntoIterator<Item = (String, Vec<u8>)>) {
    let line = |(name, bytes): (String, Vec<u8>)| {
        let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name}: {}\n", bytes.join(" "))
    };
    let ours: String = said.into_iter().map(line).collect();
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let theirs: String = lines.flat_map(|line| [line, "\n"]).collect();
    assert!(ours == theirs, "the specification should have:\n{ours}");
}
