//! stub
use super::report::Row;
use super::run::Run;
pub(crate) fn measure(_run: &mut Run) -> std::io::Result<Vec<Row>> {
    Ok(Vec::new())
}
