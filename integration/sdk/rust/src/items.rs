//! Databases, containers, items, patches, batches, time to live, conditions and errors.

use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{
    ItemResponse, PartitionKeyValue, PatchInstructions, PatchOperation, ThroughputProperties, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
use azure_data_cosmos::options::{ItemReadOptions, ItemWriteOptions, PatchItemOptions, PatchStrategy, Precondition};
use azure_data_cosmos::{PartitionKey, Query, TransactionalBatch};
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::harness::{
    Case, Home, Outcome, canonical, case, check, client, container, equal, etag, eventually, home, item, key, plain, refused, rows, variable,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("databases and containers", containers()),
        case("items", items()),
        case("values of every kind", values()),
        case("hierarchical keys", hierarchical_keys()),
        case("conditions of etags", etags()),
        case("patch", patch(PatchStrategy::ServerSide)),
        case("patch by the client", patch(PatchStrategy::ClientSide)),
        case("batch", batch()),
        case("time to live", time_to_live()),
        case("errors", errors()),
        case("keys", keys()),
    ]
}

/// emails has each e-mail address once in a partition key.
fn emails() -> UniqueKeyPolicy {
    UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email"))
}

fn status(response: &ItemResponse) -> Outcome<u16> {
    let charge = response.headers().request_charge().ok_or("an answer without a charge")?.value();
    check(charge > 0.0 && response.headers().activity_id().is_some(), "charge and activity")?;
    check(response.headers().session_token().is_some(), "an answer without a session token")?;
    Ok(response.status().status_code().into())
}

async fn containers() -> Outcome {
    let described = container("items", &["/tenant", "/user"]).with_default_ttl(TimeToLive::Seconds(3600)).with_unique_key_policy(emails());
    let Home { client, name, database, items } = home(described).await?;
    let mut read = items.read(None).await?.into_model()?;
    equal(read.partition_key.paths(), ["/tenant", "/user"].as_slice(), "paths")?;
    equal(&read.default_ttl, &TimeToLive::Seconds(3600), "time to live")?;
    equal(read.unique_key_policy.as_ref(), Some(&emails()), "unique keys")?;
    read.default_ttl = TimeToLive::NoDefault;
    equal(items.replace(read, None).await?.into_model()?.default_ttl, TimeToLive::NoDefault, "time to live of the replaced")?;
    let by_id = Query::from("SELECT * FROM d WHERE d.id = @id").with_parameter("@id", &name)?;
    let found: Vec<_> = client.query_databases(by_id, None).await?.map_ok(|d| d.id).try_collect().await?;
    equal(found, [Some(name.clone())], "databases by id")?;
    equal(database.read(None).await?.into_model()?.id, Some(name.clone()), "the database")?;
    refused(409, client.create_database(&name, None).await, "a database twice")?;
    database.create_container(container("others", &["/pk"]), None).await?;
    refused(409, database.create_container(container("others", &["/pk"]), None).await, "a container twice")?;
    let mut listed: Vec<_> = database.query_containers("SELECT * FROM c", None).await?.map_ok(|c| c.id).try_collect().await?;
    listed.sort();
    equal(listed, ["items", "others"], "containers")?;
    let others = database.container_client("others", None).await?;
    equal(others.read_throughput(None).await?.and_then(|t| t.throughput()), Some(400), "throughput")?;
    let more = others.begin_replace_throughput(ThroughputProperties::manual(900), None).await?.await?.into_model()?;
    equal(more.throughput(), Some(900), "throughput of the replaced")?;
    equal(others.read_feed_ranges(None).await?.len().to_string(), variable("MILLRACE_PARTITIONS")?, "feed ranges")?;
    others.delete(None).await?;
    refused(404, others.read(None).await, "a container that was deleted")?;
    refused(404, database.container_client("missing", None).await.map(|_| ()), "a container that never was")?;
    database.delete(None).await?;
    refused(404, database.read(None).await, "a database that was deleted")?;
    Ok(())
}

async fn items() -> Outcome {
    let c = home(plain()).await?.items;
    for pk in [json!("a"), json!(1), json!(-1.5), json!("1"), json!(true), json!(""), json!("Zoë ☃"), json!(null)] {
        let (k, id, what) = (key(&pk)?, format!("é 'q' \"d\" + {pk}"), pk.to_string());
        let created = c.create_item(k.clone(), &id, item(&id, pk.clone(), 1), None).await?;
        equal(status(&created)?, 201, &what)?;
        let tag = etag(created.headers())?;
        let shown: Value = created.into_model()?;
        equal(&shown["_etag"], tag.as_str(), &what)?;
        equal(c.read_item(k.clone(), &id, None).await?.into_model::<Value>()?, shown, &what)?;
        refused(409, c.create_item(k.clone(), &id, item(&id, pk.clone(), 9), None).await, &what)?;
        equal(status(&c.replace_item(k.clone(), &id, item(&id, pk.clone(), 2), None).await?)?, 200, &what)?;
        equal(status(&c.upsert_item(k.clone(), &id, item(&id, pk.clone(), 3), None).await?)?, 200, &what)?;
        equal(&c.read_item(k.clone(), &id, None).await?.into_model::<Value>()?["n"], 3, &what)?;
        refused(404, c.read_item("another", &id, None).await, &what)?;
        equal(status(&c.delete_item(k.clone(), &id, None).await?)?, 204, &what)?;
        refused(404, c.read_item(k, &id, None).await, &what)?;
    }
    equal(status(&c.upsert_item("a", "new", item("new", "a", 1), None).await?)?, 201, "an upsert of what was not there")?;
    c.create_item(PartitionKeyValue::UNDEFINED, "without", json!({"id": "without"}), None).await?;
    let without: Value = c.read_item(PartitionKeyValue::UNDEFINED, "without", None).await?.into_model()?;
    equal(&without["id"], "without", "an item without a key")
}

/// A value comes back as it went, in whichever form the crate sends it.
async fn values() -> Outcome {
    let c = home(plain()).await?.items;
    let mut deep = json!([]);
    for _ in 0..60 {
        deep = json!([deep, {}]);
    }
    let whole = json!({
        "id": "1", "pk": "a", "null": null, "yes": true, "no": false, "": "no name", "deep": deep,
        "numbers": [0, 31, 32, -1, -32, 255, 65_536, i64::from(i32::MIN), 9_007_199_254_740_991_i64, 0.1, -2.5e-7, 1e300],
        "texts": ["", "\"quoted\" \\ and\n\u{1}", "Zoë ☃ 😀", "x".repeat(63), "x".repeat(64), "y".repeat(255), "y".repeat(256), "z".repeat(70_000)],
        "many": (0..300).map(|n| json!({"n": n, "name": format!("number {n}")})).collect::<Vec<_>>(),
    });
    c.create_item("a", "1", &whole, None).await?;
    let mut read: Value = c.read_item("a", "1", None).await?.into_model()?;
    read.as_object_mut().ok_or("no object")?.retain(|name, _| !name.starts_with('_'));
    equal(canonical(&read), canonical(&whole), "the item that was read")?;
    let mut found = rows(&c, "SELECT * FROM c", FeedScope::partition("a")).await?;
    found[0].as_object_mut().ok_or("no object")?.retain(|name, _| !name.starts_with('_'));
    equal(canonical(&found[0]), canonical(&whole), "the item that was found")
}

async fn hierarchical_keys() -> Outcome {
    let c = home(container("items", &["/tenant", "/user"])).await?.items;
    for i in 0..12 {
        let (id, tenant, user) = (i.to_string(), if i % 2 == 0 { "a" } else { "b" }, format!("u{}", i % 3));
        c.create_item((tenant, user.clone()), &id, json!({"id": id, "tenant": tenant, "user": user}), None).await?;
    }
    equal(&c.read_item(("b", "u1"), "1", None).await?.into_model::<Value>()?["user"], "u1", "an item")?;
    equal(rows(&c, "SELECT * FROM c", FeedScope::partition("a")).await?.len(), 6, "items of a prefix")?;
    equal(rows(&c, "SELECT * FROM c", FeedScope::partition(("b", "u1"))).await?.len(), 2, "items of a key")?;
    equal(rows(&c, "SELECT * FROM c", FeedScope::full_container()).await?.len(), 12, "items")
}

async fn etags() -> Outcome {
    let c = home(plain()).await?.items;
    let first = etag(c.create_item("a", "1", item("1", "a", 1), None).await?.headers())?;
    let holds = |tag: &str| Some(ItemWriteOptions::default().with_precondition(Precondition::if_match(tag)));
    let second = etag(c.replace_item("a", "1", item("1", "a", 2), holds(&first)).await?.headers())?;
    let stale = refused(412, c.replace_item("a", "1", item("1", "a", 9), holds(&first)).await, "replace")?;
    check(stale.status().is_precondition_failed(), "the status of a condition")?;
    refused(412, c.upsert_item("a", "1", item("1", "a", 9), holds(&first)).await, "upsert")?;
    refused(412, c.delete_item("a", "1", holds(&first)).await, "delete")?;
    let unless = |tag: &str| Some(ItemReadOptions::default().with_precondition(Precondition::if_none_match(tag)));
    let unchanged = c.read_item("a", "1", unless(&second)).await.map_or_else(|e| e.status(), |r| r.status());
    equal(u16::from(unchanged.status_code()), 304, "a read of what is the same")?;
    equal(&c.read_item("a", "1", unless(&first)).await?.into_model::<Value>()?["n"], 2, "a read of what has changed")?;
    c.delete_item("a", "1", holds(&second)).await?;
    Ok(())
}

async fn patch(by: PatchStrategy) -> Outcome {
    let c = home(plain()).await?.items;
    let seed = json!({"id": "1", "pk": "a", "n": 5, "tags": ["x", "y"], "deep": {"a~b": 1, "c/d": 2}, "gone": true});
    let first = etag(c.create_item("a", "1", seed, None).await?.headers())?;
    let options = || Some(PatchItemOptions::default().with_strategy(by));
    let six = PatchInstructions::from(vec![
        PatchOperation::set("/name", json!("n")),
        PatchOperation::add("/tags/1", json!("b")),
        PatchOperation::replace("/deep/a~0b", json!(7)),
        PatchOperation::remove("/gone"),
        PatchOperation::increment("/n", -2_i64),
        PatchOperation::move_value("/deep/c~1d", "/moved"),
    ]);
    let got: Value = c.patch_item("a", "1", six, options()).await?.into_model()?;
    let shown = json!([got["name"], got["tags"], got["deep"], got["n"], got["moved"], got["gone"]]);
    equal(shown, json!(["n", ["x", "b", "y"], {"a~b": 7}, 3, 2, null]), "the patched item")?;
    let one = || PatchInstructions::from(vec![PatchOperation::increment("/n", 1_i64)]);
    let stale = options().map(|o| o.with_precondition(Precondition::if_match(first)));
    refused(412, c.patch_item("a", "1", one(), stale).await, "a patch of what has changed")?;
    refused(400, c.patch_item("a", "1", vec![PatchOperation::remove("/none")].into(), options()).await, "a path that is not there")?;
    refused(404, c.patch_item("a", "none", one(), options()).await, "an item that is not there")?;
    equal(&c.patch_item("a", "1", one(), options()).await?.into_model::<Value>()?["n"], 4, "an increment")
}

async fn batch() -> Outcome {
    let c = home(plain()).await?.items;
    let seed = etag(c.create_item("a", "seed", item("seed", "a", 1), None).await?.headers())?;
    let whole = TransactionalBatch::new("a")
        .create_item(item("new", "a", 1))?
        .upsert_item(item("new", "a", 2), None)?
        .replace_item("seed", item("seed", "a", 12), None)?
        .read_item("seed", None)
        .delete_item("new", None);
    let done = c.execute_transactional_batch(whole, None).await?.into_model()?;
    equal(done.results().iter().map(|r| r.status_code()).collect::<Vec<_>>(), [201, 200, 200, 200, 204], "a batch")?;
    equal(&done.results()[3].into_model::<Value>()?.ok_or("no body")?["n"], 12, "the item that the batch reads")?;
    let conflict = TransactionalBatch::new("a").create_item(item("x", "a", 1))?.create_item(item("seed", "a", 1))?;
    let failed = c.execute_transactional_batch(conflict, None).await?;
    equal(failed.into_model()?.results().iter().map(|r| r.status_code()).collect::<Vec<_>>(), [424, 409], "a conflict")?;
    let holds = azure_data_cosmos::options::BatchDeleteOptions::default().with_precondition(Precondition::if_match(seed));
    let stale = TransactionalBatch::new("a").create_item(item("x", "a", 1))?.delete_item("seed", Some(holds));
    let failed = c.execute_transactional_batch(stale, None).await?;
    equal(failed.into_model()?.results().iter().map(|r| r.status_code()).collect::<Vec<_>>(), [424, 412], "a condition")?;
    equal(rows(&c, "SELECT VALUE c.id FROM c", FeedScope::full_container()).await?, ["seed"], "what is there")
}

async fn time_to_live() -> Outcome {
    let c = home(plain().with_default_ttl(TimeToLive::NoDefault)).await?.items;
    c.create_item("a", "short", json!({"id": "short", "pk": "a", "ttl": 1}), None).await?;
    c.create_item("a", "long", item("long", "a", 1), None).await?;
    eventually("the item is gone", || async { Ok(rows(&c, "SELECT VALUE c.id FROM c", FeedScope::full_container()).await? == ["long"]) }).await?;
    refused(404, c.read_item("a", "short", None).await, "an item that has expired")?;
    c.create_item("a", "short", item("short", "a", 2), None).await?;
    Ok(())
}

async fn errors() -> Outcome {
    let c = home(plain().with_unique_key_policy(emails())).await?.items;
    let with_email = |id: &str| json!({"id": id, "pk": "a", "email": "x"});
    c.create_item("a", "1", with_email("1"), None).await?;
    let twice = refused(409, c.create_item("a", "2", with_email("2"), None).await, "an address twice")?;
    check(twice.is_from_wire() && twice.status().is_conflict(), "the status of a conflict")?;
    let absent = refused(404, c.replace_item("a", "none", item("none", "a", 1), None).await, "replace")?;
    check(absent.status().is_not_found(), "the status of what is not there")?;
    refused(404, c.delete_item("a", "none", None).await, "delete")?;
    let large = json!({"id": "2", "pk": "a", "text": "x".repeat(2 << 20)});
    refused(413, c.create_item("a", "2", large, None).await, "an item that is too large")?;
    let other = refused(400, c.create_item("b", "2", item("2", "a", 1), None).await, "a key that is not the item's")?;
    equal(other.status().sub_status().map(|s| s.value()), Some(1001), "substatus")?;
    refused(400, c.create_item("a", "2", json!({"pk": "a"}), None).await, "an item without an id")?;
    for scope in [FeedScope::partition("a"), FeedScope::full_container()] {
        let asked = c.query_items::<Value>("SELECT FROM WHERE", scope, None).await;
        let rows = match asked {
            Ok(rows) => rows.try_collect::<Vec<_>>().await,
            Err(e) => Err(e),
        };
        refused(400, rows, "a query that is none")?;
    }
    Ok(())
}

async fn keys() -> Outcome {
    let h = home(plain()).await?;
    h.items.create_item("a", "1", item("1", "a", 1), None).await?;
    let reader = client(&variable("MILLRACE_READ_ONLY_KEY")?).await?;
    let r = reader.database_client(h.name.as_str()).container_client("items", None).await?;
    refused(403, r.upsert_item("a", "1", item("1", "a", 9), None).await, "a write with a key that reads")?;
    equal(&r.read_item("a", "1", None).await?.into_model::<Value>()?["n"], 1, "a read with a key that reads")?;
    let stranger = client("bm90IGEga2V5IHRoYXQgaXMgaW4gZm9yY2U=").await.err().ok_or("a key that is not in force opens a client")?;
    check(stranger.to_string().contains("401"), stranger.to_string())?;
    // Signed with a key, a partition key may hold what a header cannot.
    let odd = PartitionKey::from("ä\t\"☃");
    h.items.create_item(odd.clone(), "odd", item("odd", "ä\t\"☃", 1), None).await?;
    equal(h.items.read_item(odd, "odd", None).await?.into_model::<Value>()?["n"].as_i64(), Some(1), "an odd key")
}
