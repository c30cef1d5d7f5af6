package millrace;

import static millrace.Harness.JSON;
import static millrace.Harness.KEY;
import static millrace.Harness.STRICT;
import static millrace.Harness.builder;
import static millrace.Harness.canonical;
import static millrace.Harness.check;
import static millrace.Harness.equal;
import static millrace.Harness.home;
import static millrace.Harness.item;
import static millrace.Harness.refused;
import static millrace.Harness.test;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;

/** Queries: the same that the other SDKs are asked, in pages of any size and over several ranges. */
final class Queries {
    private static Harness.Home filled;

    private Queries() {}

    private static CosmosContainer shared(JsonNode items) {
        if (filled == null) {
            // Cosmos DB orders by two paths where an index is of both.
            IndexingPolicy policy = new IndexingPolicy().setCompositeIndexes(List.of(List.of(new CompositePath().setPath("/kind").setOrder(CompositePathSortOrder.ASCENDING),
                new CompositePath().setPath("/n").setOrder(CompositePathSortOrder.DESCENDING))));
            filled = home(new CosmosContainerProperties("items", "/pk").setIndexingPolicy(policy));
            items.forEach(i -> filled.items().createItem(i));
        }
        return filled.items();
    }

    static void add() throws IOException {
        JsonNode data = JSON.readTree(new File(System.getenv("MILLRACE_QUERIES")));
        for (JsonNode c : data.get("cases")) {
            for (int page : List.of(-1, 2)) {
                test("query: " + c.get("name").asText() + "/page=" + page, () -> ask(shared(data.get("items")), c, page));
            }
        }
        test("query: order over ranges by continuations", Queries::ordered);
        test("query: order of several types by continuations", Queries::orderedTypes);
        test("query: order of equal values by continuations", Queries::orderedEqual);
        test("read many", Queries::readMany);
        test("query: what Cosmos DB refuses", () -> refusals(shared(data.get("items"))));
        test("query: by feed ranges", () -> {
            CosmosContainer c = shared(data.get("items"));
            int rows = 0;
            for (var range : c.getFeedRanges()) {
                rows += (int) c.queryItems("SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(range), JsonNode.class).stream().count();
            }
            equal(rows, data.get("items").size());
        });
    }

    private static void ask(CosmosContainer c, JsonNode asked, int page) {
        List<SqlParameter> parameters = new ArrayList<>();
        if (asked.has("parameters")) {
            asked.get("parameters").fields().forEachRemaining(p -> parameters.add(new SqlParameter(p.getKey(), p.getValue())));
        }
        CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
        if (asked.has("key")) {
            options.setPartitionKey(new PartitionKey(JSON.convertValue(asked.get("key"), Object.class)));
        }
        List<String> got = new ArrayList<>();
        var rows = c.queryItems(new SqlQuerySpec(asked.get("query").asText(), parameters), options, JsonNode.class);
        for (FeedResponse<JsonNode> response : page > 0 ? rows.iterableByPage(page) : rows.iterableByPage()) {
            check(page < 0 || response.getResults().size() <= page, "a page of", response.getResults().size());
            response.getResults().forEach(r -> got.add(canonical(r)));
        }
        List<String> want = new ArrayList<>();
        if (STRICT && asked.get("name").asText().equals("sum over texts is undefined")) {
            equal(got, List.of("{s={}}")); // so the SDK shows an aggregate that is undefined
            return;
        }
        asked.get("want").forEach(r -> want.add(canonical(r)));
        if (!asked.path("ordered").asBoolean()) {
            got.sort(null);
            want.sort(null);
        }
        equal(got, want, asked.get("query"));
    }

    private static void ordered() throws Exception {
        Harness.Home h = home();
        List<Integer> want = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            h.items().createItem(item("" + i, "p" + i % 11, i));
            want.add(0, i);
        }
        List<Integer> got = new ArrayList<>();
        String token = null;
        int clients = 0;
        do { // each page by a client of its own
            try (CosmosClient another = clients < 3 ? builder(KEY).buildClient() : null) {
                CosmosContainer c = another == null ? h.items() : another.getDatabase(h.database().getId()).getContainer("items");
                var page = c.queryItems("SELECT VALUE c.n FROM c ORDER BY c.n DESC", new CosmosQueryRequestOptions(), Integer.class)
                    .iterableByPage(token, 7).iterator().next();
                got.addAll(page.getResults());
                token = page.getContinuationToken();
                clients++;
            }
        } while (token != null);
        equal(got, want);
        refused(400, () -> h.items().queryItems("SELECT * FROM c", new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("p1")), JsonNode.class)
            .iterableByPage("nonsense").iterator().next());
    }

    private static void orderedTypes() throws Exception {
        Harness.Home h = home();
        List<String> values = List.of("null", "false", "true", "-1", "1", "\"a\"", "\"b\"");
        for (int i = 0; i < 14; i++) { // each value in two ranges or one
            h.items().createItem(item("" + i, "p" + i, i).set("v", JSON.readTree(values.get(i / 2))));
        }
        for (String direction : List.of("ASC", "DESC")) {
            List<String> got = new ArrayList<>();
            String token = null;
            do {
                var page = h.items().queryItems("SELECT c.v FROM c ORDER BY c.v " + direction, new CosmosQueryRequestOptions(), JsonNode.class)
                    .iterableByPage(token, 3).iterator().next();
                page.getResults().forEach(v -> got.add(v.get("v").toString()));
                token = page.getContinuationToken();
            } while (token != null);
            List<String> want = new ArrayList<>();
            values.forEach(v -> want.addAll(direction.equals("ASC") ? want.size() : 0, List.of(v, v)));
            equal(got, want, direction);
        }
    }

    private static void orderedEqual() throws Exception {
        Harness.Home h = home();
        for (int i = 0; i < 60; i++) {
            h.items().createItem(item("" + i, "p" + i % 11, i).put("v", i % 2));
        }
        for (String direction : List.of("ASC", "DESC")) {
            List<Integer> got = new ArrayList<>();
            List<Integer> places = new ArrayList<>();
            String token = null;
            do {
                var page = h.items().queryItems("SELECT c.n, c.v FROM c ORDER BY c.v " + direction, new CosmosQueryRequestOptions(), JsonNode.class)
                    .iterableByPage(token, 7).iterator().next();
                page.getResults().forEach(row -> {
                    got.add(row.get("n").asInt());
                    places.add(row.get("v").asInt());
                });
                token = page.getContinuationToken();
            } while (token != null);
            List<Integer> ordered = new ArrayList<>(places);
            ordered.sort(direction.equals("ASC") ? Comparator.naturalOrder() : Comparator.reverseOrder());
            equal(places, ordered, direction);
            got.sort(null);
            equal(got, IntStream.range(0, 60).boxed().toList(), direction);
        }
    }

    private static void refusals(CosmosContainer c) throws Exception {
        for (String query : List.of("SELECT * FROM c ORDER BY c.n + 1", "SELECT * FROM c ORDER BY c.n, c.pk", "SELECT c.kind FROM c WHERE c.order = 1")) {
            Harness.Body ask = () -> c.queryItems(query, new CosmosQueryRequestOptions(), JsonNode.class).stream().count();
            if (STRICT) {
                refused(400, ask);
            } else {
                ask.run();
            }
        }
    }

    private static void readMany() {
        Harness.Home h = home();
        List<CosmosItemIdentity> wanted = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            h.items().createItem(item("" + i, "p" + i % 7, i));
            if (i % 2 == 0) {
                wanted.add(new CosmosItemIdentity(new PartitionKey("p" + i % 7), "" + i));
            }
        }
        wanted.add(new CosmosItemIdentity(new PartitionKey("p1"), "none"));
        FeedResponse<JsonNode> got = h.items().readMany(wanted, JsonNode.class);
        equal(got.getResults().stream().mapToInt(i -> i.get("n").asInt()).sum(), 90);
        equal(got.getResults().size(), 10);
    }
}
