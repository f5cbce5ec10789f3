//! Scratch.
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (first, worker) = (
        handfast::connect(&a[1]).unwrap(),
        handfast::connect(&a[2]).unwrap(),
    );
    let len: usize = a[3].parse().unwrap();
    let m = vec![7u8; len];
    let _ = worker.call(&m);
    let rounds: usize = a[4].parse().unwrap();
    let mut best = f64::MAX;
    let mut all = vec![];
    for _ in 0..rounds {
        let s = Instant::now();
        for _ in 0..2000 {
            first.call(&m).unwrap();
        }
        let t = s.elapsed().as_nanos() as f64 / 2000.0;
        best = best.min(t);
        all.push(t);
    }
    all.sort_by(f64::total_cmp);
    println!(
        "best {best:.0} q1 {:.0} median {:.0}",
        all[rounds / 4],
        all[rounds / 2]
    );
}
