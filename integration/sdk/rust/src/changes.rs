//! The change feed, which the crate reads page by page.

use std::num::NonZeroU32;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ContinuationToken, FeedScope};
use azure_data_cosmos::models::{ChangeFeedOperationType, ChangeFeedPolicy};
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint};
use futures::TryStreamExt;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::harness::{Case, EMPTY_PAGES, Outcome, case, check, equal, home, item, plain};

pub fn cases() -> Vec<Case> {
    vec![case("change feed: latest versions", latest()), case("change feed: all versions and deletes", all_versions())]
}

/// rest is what a feed has until nothing is new, each as `show` prints it, and where it goes on.
async fn rest(
    c: &ContainerClient,
    scope: FeedScope,
    from: ChangeFeedStartFrom,
    options: ChangeFeedOptions,
    show: impl Fn(&azure_data_cosmos::models::ChangeFeedItem<Value>) -> String,
) -> Outcome<(Vec<String>, ContinuationToken)> {
    let (mut shown, mut empty) = (Vec::new(), 0);
    let mut pages = c.query_change_feed::<Value>(scope, from, Some(options)).await?;
    while empty < EMPTY_PAGES {
        let page = pages.try_next().await?.ok_or("a feed that ends")?;
        empty = if page.items().is_empty() { empty + 1 } else { 0 };
        shown.extend(page.items().iter().map(&show));
    }
    Ok((shown, pages.to_continuation_token()?))
}

fn version(c: &azure_data_cosmos::models::ChangeFeedItem<Value>) -> String {
    c.current().map_or_else(|| "-".into(), |i| format!("{}={}", i["id"].as_str().unwrap_or_default(), i["n"]))
}

/// versions is rest in the latest versions, sorted.
async fn versions(c: &ContainerClient, scope: FeedScope, from: ChangeFeedStartFrom, options: ChangeFeedOptions) -> Outcome<(String, ContinuationToken)> {
    let (mut shown, token) = rest(c, scope, from, options, version).await?;
    shown.sort();
    Ok((shown.join(" "), token))
}

async fn latest() -> Outcome {
    use ChangeFeedStartFrom::{Beginning, Now, PointInTime};
    let c = home(plain()).await?.items;
    let (all, plainly) = (FeedScope::full_container, ChangeFeedOptions::default);
    let after = |token: &ContinuationToken| ChangeFeedOptions::default().with_continuation_token(token.clone());
    let (_, late) = versions(&c, all(), Now, plainly()).await?;
    equal(versions(&c, all(), Beginning, plainly()).await?.0, "", "an empty container")?;
    for (id, pk, n) in [("1", "a", 1), ("2", "b", 1), ("3", "c", 1), ("1", "a", 2)] {
        c.upsert_item(pk, id, item(id, pk, n), None).await?;
    }
    let (first, token) = versions(&c, all(), Beginning, plainly()).await?;
    equal(first, "1=2 2=1 3=1", "from the beginning")?;
    c.upsert_item("b", "2", item("2", "b", 2), None).await?;
    c.delete_item("c", "3", None).await?;
    c.create_item("d", "4", item("4", "d", 1), None).await?;
    equal(versions(&c, all(), Beginning, after(&token)).await?.0, "2=2 4=1", "after a continuation")?;
    equal(versions(&c, all(), Now, after(&late)).await?.0, "1=2 2=2 4=1", "after the continuation of an empty feed")?;
    let now = OffsetDateTime::now_utc();
    equal(versions(&c, all(), PointInTime(now - Duration::hours(1)), plainly()).await?.0, "1=2 2=2 4=1", "from an hour ago")?;
    equal(versions(&c, all(), PointInTime(now + Duration::hours(1)), plainly()).await?.0, "", "from a time to come")?;
    equal(versions(&c, FeedScope::partition("b"), Beginning, plainly()).await?.0, "2=2", "of a partition key")?;
    let mut parts = 0;
    for range in c.read_feed_ranges(None).await? {
        let one = plainly().with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::MIN));
        parts += versions(&c, FeedScope::range(range), Beginning, one).await?.0.split_whitespace().count();
    }
    equal(parts, 3, "items of all ranges")
}

async fn all_versions() -> Outcome {
    let c = home(plain().with_change_feed_policy(ChangeFeedPolicy::default().with_retention_duration(std::time::Duration::from_secs(600)))).await?.items;
    let every = || ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
    let (none, token) = rest(&c, FeedScope::full_container(), ChangeFeedStartFrom::Now, every(), version).await?;
    check(none.is_empty(), format!("what was before: {none:?}"))?;
    c.create_item("a", "1", item("1", "a", 1), None).await?;
    c.replace_item("a", "1", item("1", "a", 2), None).await?;
    c.delete_item("a", "1", None).await?;
    let show = |i: &azure_data_cosmos::models::ChangeFeedItem<Value>| {
        let kind = match i.operation_type() {
            Some(ChangeFeedOperationType::Create) => "create",
            Some(ChangeFeedOperationType::Replace) => "replace",
            Some(ChangeFeedOperationType::Delete) => "delete",
            _ => "?",
        };
        let id = i.metadata().and_then(|m| m.id()).unwrap_or_default();
        format!("{kind} {} {id}", version(i))
    };
    let after = every().with_continuation_token(token);
    let (shown, _) = rest(&c, FeedScope::full_container(), ChangeFeedStartFrom::Now, after, show).await?;
    equal(shown, ["create 1=1 ", "replace 1=2 ", "delete - 1"], "all versions")
}
