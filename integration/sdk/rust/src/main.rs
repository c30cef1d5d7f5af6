//! Runs all cases, or those whose names hold the argument, or with a dash before it do not, one after the other, and prints a line of JSON for each, of which
//! rust_test.go makes a Go test.

mod changes;
mod going;
mod harness;
mod items;
mod queries;

use std::env;
use std::time::Instant;

use harness::Outcome;
use serde_json::json;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let only = env::args().nth(1).unwrap_or_default();
    if only == "going" {
        return going::run().await;
    }
    let cases = items::cases().into_iter().chain(queries::cases()?).chain(changes::cases());
    let asked = |name: &str| only.strip_prefix('-').map_or_else(|| name.contains(&only), |but| !name.contains(but));
    for case in cases.filter(|c| asked(&c.name)) {
        let began = Instant::now();
        // A task of its own, so that a panic is an error too.
        let error = match tokio::spawn(case.body).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(e)) => format!("{e}: {e:?}"),
            Err(e) => e.to_string(),
        };
        let milliseconds = u64::try_from(began.elapsed().as_millis())?;
        println!("{}", json!({"name": case.name, "error": error, "milliseconds": milliseconds}));
    }
    Ok(())
}
