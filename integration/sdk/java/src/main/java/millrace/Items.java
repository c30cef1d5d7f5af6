package millrace;

import static millrace.Harness.KEY;
import static millrace.Harness.PARTITIONS;
import static millrace.Harness.READ_ONLY_KEY;
import static millrace.Harness.builder;
import static millrace.Harness.check;
import static millrace.Harness.client;
import static millrace.Harness.equal;
import static millrace.Harness.eventually;
import static millrace.Harness.home;
import static millrace.Harness.item;
import static millrace.Harness.refused;
import static millrace.Harness.test;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import reactor.core.publisher.Flux;

/** Containers, items, patches, batches, bulk, time to live, conditions and errors. */
final class Items {
    private Items() {}

    private static PartitionKeyDefinition hierarchical(String... paths) {
        return new PartitionKeyDefinition().setPaths(List.of(paths)).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
    }

    private static int status(CosmosItemResponse<?> response) {
        check(response.getRequestCharge() > 0 && response.getActivityId() != null, "charge and activity");
        return response.getStatusCode();
    }

    static void add() {
        test("databases and containers", Items::containers);
        test("items", Items::items);
        test("hierarchical keys", Items::hierarchicalKeys);
        test("conditions of etags", Items::etags);
        test("patch", Items::patch);
        test("batch", Items::batch);
        test("bulk", Items::bulk);
        test("time to live", Items::timeToLive);
        test("errors", Items::errors);
    }

    private static void containers() throws Exception {
        CosmosContainerProperties properties = new CosmosContainerProperties("items", hierarchical("/tenant", "/user")).setDefaultTimeToLiveInSeconds(3600)
            .setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email")))));
        CosmosDatabase database = home(properties).database();
        CosmosContainer c = database.getContainer("items");
        CosmosContainerProperties read = c.read().getProperties();
        equal(read.getPartitionKeyDefinition().getPaths(), List.of("/tenant", "/user"));
        equal(read.getDefaultTimeToLiveInSeconds(), 3600);
        equal(read.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths(), List.of("/email"));
        equal(c.replace(read.setDefaultTimeToLiveInSeconds(-1)).getProperties().getDefaultTimeToLiveInSeconds(), -1);
        SqlQuerySpec byId = new SqlQuerySpec("SELECT * FROM d WHERE d.id = @id", new SqlParameter("@id", database.getId()));
        equal(client().queryDatabases(byId, new CosmosQueryRequestOptions()).stream().map(d -> d.getId()).toList(), List.of(database.getId()));
        check(client().readAllDatabases().stream().anyMatch(d -> d.getId().equals(database.getId())), "the list lacks the database");
        equal(database.createContainerIfNotExists("others", "/pk").getStatusCode(), 201);
        equal(database.createContainerIfNotExists("others", "/pk").getStatusCode(), 200);
        equal(database.readAllContainers().stream().map(p -> p.getId()).sorted().toList(), List.of("items", "others"));
        refused(409, () -> database.createContainer("others", "/pk"));
        CosmosContainer others = database.getContainer("others");
        equal(others.readThroughput().getProperties().getManualThroughput(), 400);
        equal(others.replaceThroughput(ThroughputProperties.createManualThroughput(900)).getProperties().getManualThroughput(), 900);
        equal(others.getFeedRanges().size(), PARTITIONS);
        others.delete();
        refused(404, others::read);
        database.delete();
        refused(404, database::read);
    }

    private static void items() throws Exception {
        CosmosContainer c = home().items();
        Map<Object, PartitionKey> keys = Map.of("a", new PartitionKey("a"), 1, new PartitionKey(1), -1.5, new PartitionKey(-1.5), "1", new PartitionKey("1"),
            true, new PartitionKey(true), "", new PartitionKey(""), "Zoë ☃", new PartitionKey("Zoë ☃"));
        for (Map.Entry<Object, PartitionKey> k : keys.entrySet()) {
            PartitionKey key = k.getValue();
            String id = "é 'q' + " + k.getKey() + " \"d\"";
            CosmosItemResponse<ObjectNode> created = c.createItem(item(id, k.getKey(), 1), key, null);
            equal(status(created), 201);
            equal(created.getItem().get("_etag").asText(), created.getETag());
            equal(c.readItem(id, key, ObjectNode.class).getItem(), created.getItem());
            refused(409, () -> c.createItem(item(id, k.getKey(), 9), key, null));
            equal(status(c.replaceItem(item(id, k.getKey(), 2), id, key, null)), 200);
            equal(status(c.upsertItem(item(id, k.getKey(), 3))), 200); // the key is taken from the item
            equal(c.readItem(id, key, ObjectNode.class).getItem().get("n").asInt(), 3);
            refused(404, () -> c.readItem(id, new PartitionKey("another"), ObjectNode.class));
            equal(c.deleteItem(id, key, null).getStatusCode(), 204);
            refused(404, () -> c.readItem(id, key, ObjectNode.class));
        }
        c.createItem(Harness.JSON.createObjectNode().put("id", "without"));
        equal(c.readItem("without", PartitionKey.NONE, ObjectNode.class).getItem().get("id").asText(), "without");
    }

    private static void hierarchicalKeys() throws Exception {
        CosmosContainer c = home(new CosmosContainerProperties("items", hierarchical("/tenant", "/user"))).items();
        for (int i = 0; i < 12; i++) {
            c.createItem(Harness.JSON.createObjectNode().put("id", "" + i).put("tenant", i % 2 == 0 ? "a" : "b").put("user", "u" + i % 3));
        }
        PartitionKey whole = new PartitionKeyBuilder().add("b").add("u1").build();
        equal(c.readItem("1", whole, ObjectNode.class).getItem().get("user").asText(), "u1");
        CosmosQueryRequestOptions prefix = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("a").build());
        equal(c.queryItems("SELECT * FROM c", prefix, JsonNode.class).stream().count(), 6L);
        equal(c.queryItems("SELECT * FROM c", new CosmosQueryRequestOptions().setPartitionKey(whole), JsonNode.class).stream().count(), 2L);
    }

    private static void etags() throws Exception {
        CosmosContainer c = home().items();
        PartitionKey a = new PartitionKey("a");
        String first = c.createItem(item("1", "a", 1)).getETag();
        String second = c.replaceItem(item("1", "a", 2), "1", a, new CosmosItemRequestOptions().setIfMatchETag(first)).getETag();
        CosmosItemRequestOptions stale = new CosmosItemRequestOptions().setIfMatchETag(first);
        refused(412, () -> c.replaceItem(item("1", "a", 9), "1", a, stale));
        refused(412, () -> c.upsertItem(item("1", "a", 9), a, stale));
        refused(412, () -> c.deleteItem("1", a, stale));
        equal(c.readItem("1", a, new CosmosItemRequestOptions().setIfNoneMatchETag(second), ObjectNode.class).getStatusCode(), 304);
        equal(c.readItem("1", a, new CosmosItemRequestOptions().setIfNoneMatchETag(first), ObjectNode.class).getItem().get("n").asInt(), 2);
        c.deleteItem("1", a, new CosmosItemRequestOptions().setIfMatchETag(second));
    }

    private static void patch() throws Exception {
        CosmosContainer c = home().items();
        PartitionKey a = new PartitionKey("a");
        c.createItem((ObjectNode) Harness.JSON.readTree(
            "{\"id\":\"1\",\"pk\":\"a\",\"n\":5,\"tags\":[\"x\",\"y\"],\"deep\":{\"a~b\":1,\"c/d\":2},\"gone\":true}"));
        CosmosPatchOperations operations = CosmosPatchOperations.create().set("/name", "n").add("/tags/1", "b").replace("/deep/a~0b", 7).remove("/gone")
            .increment("/n", -2).move("/deep/c~1d", "/moved");
        JsonNode got = c.patchItem("1", a, operations, ObjectNode.class).getItem();
        equal(got.get("name").asText() + got.get("tags") + got.get("deep") + got.get("n") + got.get("moved") + got.has("gone"),
            "n[\"x\",\"b\",\"y\"]{\"a~b\":7}32false");
        CosmosPatchItemRequestOptions holds = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 3");
        equal(c.patchItem("1", a, CosmosPatchOperations.create().increment("/n", 1), holds, ObjectNode.class).getItem().get("n").asInt(), 4);
        refused(412, () -> c.patchItem("1", a, CosmosPatchOperations.create().increment("/n", 1), holds, ObjectNode.class));
        refused(400, () -> c.patchItem("1", a, CosmosPatchOperations.create().remove("/none"), ObjectNode.class));
        refused(400, () -> c.patchItem("1", a, CosmosPatchOperations.create().set("/id", "2"), ObjectNode.class));
        refused(404, () -> c.patchItem("none", a, CosmosPatchOperations.create().set("/n", 1), ObjectNode.class));
    }

    private static void batch() throws Exception {
        CosmosContainer c = home().items();
        PartitionKey a = new PartitionKey("a");
        c.createItem(item("seed", "a", 1));
        CosmosBatch batch = CosmosBatch.createCosmosBatch(a);
        batch.createItemOperation(item("new", "a", 1));
        batch.upsertItemOperation(item("new", "a", 2));
        batch.replaceItemOperation("seed", item("seed", "a", 2));
        batch.patchItemOperation("seed", CosmosPatchOperations.create().increment("/n", 10));
        batch.readItemOperation("seed");
        batch.deleteItemOperation("new");
        CosmosBatchResponse done = c.executeCosmosBatch(batch);
        check(done.isSuccessStatusCode(), done.getErrorMessage());
        equal(done.getResults().stream().map(r -> r.getStatusCode()).toList(), List.of(201, 200, 200, 200, 200, 204));
        equal(done.getResults().get(4).getItem(ObjectNode.class).get("n").asInt(), 12);
        CosmosBatch conflict = CosmosBatch.createCosmosBatch(a);
        conflict.createItemOperation(item("x", "a", 1));
        conflict.createItemOperation(item("seed", "a", 1));
        CosmosBatchResponse failed = c.executeCosmosBatch(conflict);
        check(!failed.isSuccessStatusCode(), "a conflict is a success");
        equal(failed.getResults().stream().map(r -> r.getStatusCode()).toList(), List.of(424, 409));
        equal(c.queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions(), String.class).stream().toList(), List.of("seed"));
    }

    private static void bulk() throws Exception {
        Harness.Home h = home();
        List<CosmosItemOperation> operations = new ArrayList<>();
        for (int i = 0; i < 250; i++) {
            operations.add(CosmosBulkOperations.getCreateItemOperation(item("" + i, "p" + i % 7, i), new PartitionKey("p" + i % 7)));
        }
        Map<Integer, Integer> counts = new TreeMap<>();
        h.async().executeBulkOperations(Flux.fromIterable(operations)).toIterable().forEach(r -> counts.merge(r.getResponse().getStatusCode(), 1, Integer::sum));
        equal(counts, Map.of(201, 250));
        List<CosmosItemOperation> mixed = List.of(
            CosmosBulkOperations.getReadItemOperation("3", new PartitionKey("p3")), CosmosBulkOperations.getCreateItemOperation(item("0", "p0", 0), new PartitionKey("p0")),
            CosmosBulkOperations.getDeleteItemOperation("1", new PartitionKey("p1")), CosmosBulkOperations.getDeleteItemOperation("none", new PartitionKey("p1")),
            CosmosBulkOperations.getPatchItemOperation("2", new PartitionKey("p2"), CosmosPatchOperations.create().increment("/n", 40)),
            CosmosBulkOperations.getUpsertItemOperation(item("up", "p0", 1), new PartitionKey("p0")),
            CosmosBulkOperations.getReplaceItemOperation("7", item("7", "p0", -7), new PartitionKey("p0")));
        Map<Integer, Integer> got = new TreeMap<>();
        h.async().executeBulkOperations(Flux.fromIterable(mixed)).toIterable()
            .forEach(r -> got.put(mixed.indexOf(r.getOperation()), r.getResponse().getStatusCode()));
        equal(new ArrayList<>(got.values()), List.of(200, 409, 204, 404, 200, 201, 200));
        equal(h.items().queryItems("SELECT VALUE COUNT(1) FROM c", new CosmosQueryRequestOptions(), Integer.class).stream().toList(), List.of(250));
        equal(h.items().readItem("2", new PartitionKey("p2"), ObjectNode.class).getItem().get("n").asInt(), 42);
    }

    private static void timeToLive() throws Exception {
        CosmosContainer c = home(new CosmosContainerProperties("items", "/pk").setDefaultTimeToLiveInSeconds(-1)).items();
        c.createItem(item("short", "a", 1).put("ttl", 1));
        c.createItem(item("long", "a", 1));
        eventually("the item is gone", () -> c.queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions(), String.class).stream().toList()
            .equals(List.of("long")));
        refused(404, () -> c.readItem("short", new PartitionKey("a"), ObjectNode.class));
        c.createItem(item("short", "a", 2));
    }

    private static void errors() throws Exception {
        Harness.Home h = home(new CosmosContainerProperties("items", "/pk")
            .setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email"))))));
        CosmosContainer c = h.items();
        PartitionKey a = new PartitionKey("a");
        c.createItem(item("1", "a", 1).put("email", "x"));
        refused(409, () -> c.createItem(item("2", "a", 1).put("email", "x")));
        refused(404, () -> c.replaceItem(item("none", "a", 1), "none", a, null));
        refused(404, () -> c.deleteItem("none", a, null));
        refused(413, () -> c.createItem(item("2", "a", 1).put("text", "x".repeat(2 << 20))));
        refused(400, () -> c.queryItems("SELECT FROM WHERE", new CosmosQueryRequestOptions(), JsonNode.class).stream().count());
        refused(404, () -> h.database().getContainer("missing").createItem(item("1", "a", 1), a, null));
        try (CosmosClient reader = builder(READ_ONLY_KEY).buildClient()) {
            CosmosContainer r = reader.getDatabase(h.database().getId()).getContainer("items");
            refused(403, () -> r.upsertItem(item("1", "a", 9)));
            equal(r.readItem("1", a, ObjectNode.class).getItem().get("email").asText(), "x");
        }
        String stranger = Base64.getEncoder().encodeToString(("not " + UUID.randomUUID() + KEY.length()).getBytes(StandardCharsets.UTF_8));
        try {
            builder(stranger).buildClient().close();
            check(false, "a key that is not in force opens a client");
        } catch (RuntimeException e) {
            check(e.getMessage().contains("Unauthorized"), e); // the SDK wraps what the account is answered with
        }
        equal(c.readAllItems(a, ObjectNode.class).stream().map(i -> i.get("n").asInt()).toList(), List.of(1));
    }
}
