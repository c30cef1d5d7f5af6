//! Queries: the same that the other SDKs are asked, in pages of any size and over several ranges.

use std::num::NonZeroU32;
use std::sync::Arc;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ContinuationToken, FeedScope, QueryItemIterator};
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions, QueryPlanMode};
use azure_data_cosmos::{CosmosError, Query};
use futures::TryStreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::harness::{Case, Outcome, canonical, case, check, client, equal, home, item, key, plain, refused, variable};

/// Data is what is asked, and the container that holds it, made by the case that needs it first.
struct Data {
    items: Vec<Value>,
    container: OnceCell<ContainerClient>,
}

impl Data {
    async fn container(&self) -> Outcome<&ContainerClient> {
        let fill = || async {
            let c = home(plain()).await?.items;
            for i in &self.items {
                c.create_item(key(&i["pk"])?, i["id"].as_str().ok_or("an item without an id")?, i, None).await?;
            }
            Outcome::Ok(c)
        };
        self.container.get_or_try_init(fill).await
    }
}

pub fn cases() -> Outcome<Vec<Case>> {
    let file: Value = serde_json::from_slice(&std::fs::read(variable("MILLRACE_QUERIES")?)?)?;
    let list = |name: &str| file[name].as_array().cloned().ok_or("not the file of queries");
    let data = Arc::new(Data { items: list("items")?, container: OnceCell::new() });
    let mut cases = Vec::new();
    for asked in list("cases")? {
        for (kind, page, plan) in [
            ("page=-1", None, QueryPlanMode::LocalPreferred),
            ("page=2", NonZeroU32::new(2), QueryPlanMode::LocalPreferred),
            ("page=2, planned there", NonZeroU32::new(2), QueryPlanMode::GatewayOnly),
        ] {
            let name = format!("query: {}/{kind}", asked["name"].as_str().unwrap_or_default());
            let (data, asked) = (data.clone(), asked.clone());
            cases.push(case(name, async move { ask(data.container().await?, &asked, page, plan).await }));
        }
    }
    let ranged = data.clone();
    cases.push(case("query: by feed ranges", async move { by_ranges(&ranged).await }));
    cases.push(case("query: order over ranges by continuations", ordered()));
    cases.push(case("query: continuations in a partition key", continued()));
    Ok(cases)
}

fn options(page: Option<NonZeroU32>) -> QueryOptions {
    page.map_or_else(QueryOptions::default, |p| QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(p)))
}

async fn ask(c: &ContainerClient, asked: &Value, page: Option<NonZeroU32>, plan: QueryPlanMode) -> Outcome {
    let text = asked["query"].as_str().ok_or("no query")?;
    let mut query = Query::from(text);
    for (name, value) in asked["parameters"].as_object().into_iter().flatten() {
        query = query.with_parameter(name, value)?;
    }
    let scope = match asked.get("key") {
        Some(k) => FeedScope::partition(key(k)?),
        None => FeedScope::full_container(),
    };
    let mut got = Vec::new();
    let planned = options(page).with_query_plan_mode(plan);
    if text.contains("DISTINCT") && plan == QueryPlanMode::LocalPreferred {
        // Of the crate's own plans the one for DISTINCT wants a bound.
        let result = all::<Value>(c.query_items(query, scope, Some(planned)).await).await;
        return check(!refused(400, result, text)?.is_from_wire(), "the server has refused it");
    }
    let mut pages = c.query_items::<Value>(query, scope, Some(planned)).await?.into_pages();
    while let Some(p) = pages.try_next().await? {
        check(page.is_none_or(|most| p.items().len() <= most.get() as usize), format!("a page of {}", p.items().len()))?;
        got.extend(p.items().iter().map(canonical));
    }
    let mut want: Vec<_> = asked["want"].as_array().ok_or("no answer")?.iter().map(canonical).collect();
    if asked["ordered"] != true {
        got.sort();
        want.sort();
    }
    equal(got, want, text)
}

/// all are the rows of a query, if it was taken and answered.
async fn all<T: DeserializeOwned + Send + 'static>(asked: Result<QueryItemIterator<T>, CosmosError>) -> Result<Vec<T>, CosmosError> {
    asked?.try_collect().await
}

async fn by_ranges(data: &Data) -> Outcome {
    let c = data.container().await?;
    let mut rows = 0;
    for range in c.read_feed_ranges(None).await? {
        rows += c.query_items::<Value>("SELECT * FROM c", FeedScope::range(range), None).await?.try_collect::<Vec<_>>().await?.len();
    }
    equal(rows, data.items.len(), "rows of all ranges")
}

/// page is one page of numbers, and where the next begins if there may be one.
async fn page(c: &ContainerClient, query: &'static str, scope: FeedScope, most: u32, from: Option<String>) -> Outcome<(Vec<i64>, Option<String>)> {
    let mut o = options(NonZeroU32::new(most));
    if let Some(token) = from {
        o = o.with_continuation_token(ContinuationToken::from_string(token));
    }
    let mut pages = c.query_items::<i64>(query, scope, Some(o)).await?.into_pages();
    match pages.try_next().await? {
        Some(p) => Ok((p.into_items(), Some(pages.to_continuation_token()?.as_str().to_owned()))),
        None => Ok((Vec::new(), None)),
    }
}

async fn ordered() -> Outcome {
    let h = home(plain()).await?;
    for i in 0..40 {
        let (id, pk) = (i.to_string(), format!("p{}", i % 11));
        h.items.create_item(pk.clone(), &id, item(&id, pk, i), None).await?;
    }
    let (mut got, mut token, mut clients) = (Vec::new(), None, 0);
    loop {
        // The first pages are asked by a client each.
        let c = if clients < 3 {
            clients += 1;
            client(&variable("MILLRACE_KEY")?).await?.database_client(h.name.as_str()).container_client("items", None).await?
        } else {
            h.items.clone()
        };
        let (rows, next) = page(&c, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", FeedScope::full_container(), 7, token).await?;
        got.extend(rows);
        token = next;
        if token.is_none() {
            break;
        }
    }
    equal(got, (0..40).rev().collect::<Vec<_>>(), "the numbers")
}

async fn continued() -> Outcome {
    let c = home(plain()).await?.items;
    for i in 0..20 {
        c.create_item("a", &i.to_string(), item(&i.to_string(), "a", i), None).await?;
    }
    let (query, mut got, mut token, mut pages) = ("SELECT VALUE c.n FROM c ORDER BY c.n", Vec::new(), None, 0);
    loop {
        let (rows, next) = page(&c, query, FeedScope::partition("a"), 3, token).await?;
        pages += usize::from(!rows.is_empty());
        got.extend(rows);
        token = next;
        if token.is_none() {
            break;
        }
    }
    equal(got, (0..20).collect::<Vec<_>>(), "the numbers")?;
    equal(pages, 7, "pages")?;
    let wrong = QueryOptions::default().with_continuation_token(ContinuationToken::from_string("nonsense".into()));
    let asked = all::<i64>(c.query_items(query, FeedScope::partition("a"), Some(wrong)).await).await;
    refused(400, asked, "a continuation that is none")?;
    Ok(())
}
