//! Writes, queries and reads changes while somebody else splits the container's ranges, has the server start again or moves owners, until
//! the input ends. Then every acknowledged write must be in the container and have come by the change feed.

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use azure_data_cosmos::CosmosError;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ContinuationToken, FeedScope};
use azure_data_cosmos::options::{ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint, QueryOptions};
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::harness::{EMPTY_PAGES, Failure, Outcome, PATIENCE, check, equal, home, item, plain, rows, variable};

pub async fn run() -> Outcome {
    let h = home(plain()).await?;
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut [0]), Ok(1..)) {}
        end.store(true, Ordering::Relaxed);
    });
    println!("{}", json!({"database": h.name}));
    let (mut written, mut seen, mut token, mut rounds) = (BTreeMap::new(), BTreeMap::new(), None, 0);
    while !ended.load(Ordering::Relaxed) {
        rounds += 1;
        for i in 0..20 {
            let (id, pk) = (format!("i{i}"), format!("p{i}"));
            goes_on(async || Ok(h.items.upsert_item(pk.clone(), &id, item(&id, pk.clone(), rounds), None).await?)).await?;
            written.insert(id, rounds);
        }
        let got = goes_on(async || numbers(&h.items).await).await?;
        check(got.len() == 20 && got.iter().all(|n| *n == rounds), format!("round {rounds} finds {got:?}"))?;
        token = Some(goes_on(async || changes(&h.items, token.clone(), &mut seen).await).await?);
        println!("{}", json!({"round": rounds}));
    }
    goes_on(async || changes(&h.items, token.clone(), &mut seen).await).await?;
    equal(seen, written, "what came by the change feed")?;
    equal(rows(&h.items, "SELECT * FROM c", FeedScope::full_container()).await?.len(), 20, "items")?;
    println!("{}", json!({"done": rounds}));
    Ok(())
}

/// numbers are those of all items by a query over all ranges, in pages.
async fn numbers(c: &ContainerClient) -> Outcome<Vec<i64>> {
    let pages = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(7).unwrap_or(NonZeroU32::MIN)));
    let found = c.query_items::<Value>("SELECT c.n FROM c ORDER BY c.pk", FeedScope::full_container(), Some(pages)).await?;
    Ok(found.try_collect::<Vec<_>>().await?.iter().filter_map(|i| i["n"].as_i64()).collect())
}

/// changes takes what is new into seen, and returns where the feed goes on.
async fn changes(c: &ContainerClient, from: Option<ContinuationToken>, seen: &mut BTreeMap<String, i64>) -> Outcome<ContinuationToken> {
    let options = from.map_or_else(ChangeFeedOptions::default, |t| ChangeFeedOptions::default().with_continuation_token(t));
    let mut pages = c.query_change_feed::<Value>(FeedScope::full_container(), ChangeFeedStartFrom::Beginning, Some(options)).await?;
    let mut empty = 0;
    while empty < EMPTY_PAGES {
        let page = pages.try_next().await?.ok_or("a feed that ends")?;
        empty = if page.items().is_empty() { empty + 1 } else { 0 };
        for i in page.items().iter().filter_map(|i| i.current()) {
            let (id, n) = (i["id"].as_str().unwrap_or_default(), i["n"].as_i64().unwrap_or_default());
            let newest = seen.entry(id.to_owned()).or_default();
            *newest = n.max(*newest);
        }
    }
    Ok(pages.to_continuation_token()?)
}

/// goes_on tries again what the server could not take, as an application does, unless MILLRACE_UNBROKEN says that nothing may fail.
async fn goes_on<T>(mut body: impl AsyncFnMut() -> Outcome<T>) -> Outcome<T> {
    let end = Instant::now() + if variable("MILLRACE_UNBROKEN").is_ok() { Duration::ZERO } else { PATIENCE };
    loop {
        match body().await {
            Err(e) if may_pass(&e) && Instant::now() < end => tokio::time::sleep(Duration::from_millis(100)).await,
            done => return done,
        }
    }
}

/// may_pass tells whether a request may succeed when it is sent again.
fn may_pass(e: &Failure) -> bool {
    e.downcast_ref::<CosmosError>().is_some_and(|e| {
        let status = u16::from(e.status().status_code());
        !(400..408).contains(&status) && status != 409 && status != 412
    })
}
