//! What the cases share: a list of them, clients, and expectations that say what they saw.

use std::env;
use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, PartitionKey, PartitionKeyDefinition, PartitionKeyValue, ResponseHeaders};
use azure_data_cosmos::options::{ContentResponseOnWrite, OperationOptionsBuilder};
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, CosmosError, CosmosRuntime, RoutingStrategy};
use futures::TryStreamExt;
use serde_json::{Value, json};

/// How long a case waits for what must happen at last.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How many empty pages one after the other say that a change feed has nothing new: each is that of one range.
pub const EMPTY_PAGES: usize = 8;

pub type Failure = Box<dyn Error + Send + Sync>;
pub type Outcome<T = ()> = Result<T, Failure>;
pub type Body = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A case, which begins when it is first polled.
pub struct Case {
    pub name: String,
    pub body: Body,
}

/// case makes a case of what a future does.
pub fn case(name: impl Into<String>, body: impl Future<Output = Outcome> + Send + 'static) -> Case {
    Case { name: name.into(), body: Box::pin(body) }
}

pub fn variable(name: &str) -> Outcome<String> {
    env::var(name).map_err(|e| format!("{name}: {e}").into())
}

/// client signs with a key of the server. It shows what it has written, where the service is asked to. It has a runtime of its own: clients of
/// one endpoint that share theirs sign with the key of the first.
pub async fn client(key: &str) -> Outcome<CosmosClient> {
    let runtime = CosmosRuntime::builder().build().await?;
    let endpoint: AccountEndpoint = variable("MILLRACE_ENDPOINT")?.parse()?;
    let account = AccountReference::with_authentication_key(endpoint, key.to_owned());
    let shown = OperationOptionsBuilder::new().with_content_response_on_write(ContentResponseOnWrite::Enabled).build();
    let regions = RoutingStrategy::PreferredRegions(Vec::new());
    Ok(CosmosClient::builder().with_runtime(runtime).with_default_operation_options(shown).build(account, regions).await?)
}

/// Home is a container in a database of its own.
pub struct Home {
    pub client: CosmosClient,
    pub name: String,
    pub database: DatabaseClient,
    pub items: ContainerClient,
}

/// home makes a container in a database for the case alone.
pub async fn home(properties: ContainerProperties) -> Outcome<Home> {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let client = client(&variable("MILLRACE_KEY")?).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
    let name = format!("rust{}-{now}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    client.create_database(&name, None).await?;
    let database = client.database_client(name.as_str());
    let id = properties.id.to_string();
    database.create_container(properties, None).await?;
    let items = database.container_client(id, None).await?;
    Ok(Home { client, name, database, items })
}

/// container describes one whose partition key is at paths.
pub fn container(id: &'static str, paths: &[&'static str]) -> ContainerProperties {
    ContainerProperties::new(id, PartitionKeyDefinition::new(paths.iter().map(|p| (*p).into()).collect()))
}

/// plain describes the container of most cases.
pub fn plain() -> ContainerProperties {
    container("items", &["/pk"])
}

pub fn item(id: &str, pk: impl Into<Value>, n: i64) -> Value {
    json!({"id": id, "pk": pk.into(), "n": n})
}

/// key is the partition key that a value of an item makes.
pub fn key(value: &Value) -> Outcome<PartitionKey> {
    Ok(match value {
        Value::Null => PartitionKeyValue::NULL.into(),
        Value::Bool(b) => (*b).into(),
        Value::String(s) => s.clone().into(),
        Value::Number(n) => match n.as_i64() {
            Some(i) => i.into(),
            None => PartitionKey::try_from(n.as_f64().ok_or("a number of no kind")?)?,
        },
        _ => return Err(format!("{value} is no partition key").into()),
    })
}

pub fn etag(headers: &ResponseHeaders) -> Outcome<String> {
    Ok(headers.etag().ok_or("an answer without an etag")?.to_string())
}

/// rows are those of one query, in their order.
pub async fn rows(
    c: &ContainerClient,
    query: impl Into<azure_data_cosmos::Query>,
    scope: azure_data_cosmos::FeedScope,
) -> Outcome<Vec<Value>> {
    Ok(c.query_items::<Value>(query, scope, None).await?.try_collect().await?)
}

pub fn equal<T: PartialEq<U> + Debug, U: Debug>(got: T, want: U, what: &str) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}").into()) }
}

pub fn check(holds: bool, what: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// refused expects an error of the crate's own, which came with a status and says something.
pub fn refused<T>(status: u16, result: Result<T, CosmosError>, what: &str) -> Outcome<CosmosError> {
    match result {
        Ok(_) => Err(format!("{what}: no error, want {status}").into()),
        Err(e) => {
            equal(u16::from(e.status().status_code()), status, &format!("{what}: {e}"))?;
            check(!e.to_string().is_empty(), format!("{what}: an error without a message"))?;
            Ok(e)
        }
    }
}

/// eventually asks until a condition holds.
pub async fn eventually<F: Future<Output = Outcome<bool>>>(what: &str, condition: impl Fn() -> F) -> Outcome {
    let end = Instant::now() + PATIENCE;
    while !condition().await? {
        check(Instant::now() < end, format!("not after {PATIENCE:?}: {what}"))?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// canonical prints JSON so that equal values print alike, however their numbers were written.
pub fn canonical(v: &Value) -> String {
    match v {
        Value::Object(members) => {
            let mut list: Vec<_> = members.iter().map(|(k, v)| format!("{k}={}", canonical(v))).collect();
            list.sort();
            format!("{{{}}}", list.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Number(n) => n.as_f64().map_or_else(|| n.to_string(), |f| f.to_string()),
        _ => v.to_string(),
    }
}
