package millrace;

import static millrace.Harness.asyncClient;
import static millrace.Harness.check;
import static millrace.Harness.equal;
import static millrace.Harness.eventually;
import static millrace.Harness.home;
import static millrace.Harness.item;
import static millrace.Harness.test;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** The change feed, read and by the processor. */
final class Changes {
    /** Rest is what a feed had until nothing was new, and where it goes on. */
    record Rest(String shown, String continuation) {}

    private Changes() {}

    static void add() {
        test("change feed: latest versions", Changes::latest);
        test("change feed processor", () -> processor(false));
        test("change feed processor: items alone", () -> processor(true));
        test("change feed processor: two hosts share the leases", Changes::twoHosts);
    }

    static Rest rest(CosmosContainer c, CosmosChangeFeedRequestOptions options) {
        List<String> all = new ArrayList<>();
        String continuation = null;
        for (FeedResponse<JsonNode> page : c.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
            page.getResults().forEach(r -> all.add(r.get("id").asText() + "=" + r.get("n").asText()));
            continuation = page.getContinuationToken();
        }
        check(continuation != null, "a feed without a continuation");
        return new Rest(all.stream().sorted().collect(Collectors.joining(" ")), continuation);
    }

    private static void latest() {
        CosmosContainer c = home().items();
        FeedRange full = FeedRange.forFullRange();
        String late = rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromNow(full)).continuation();
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(full)).shown(), "");
        c.createItem(item("1", "a", 1));
        c.createItem(item("2", "b", 1));
        c.createItem(item("3", "c", 1));
        c.upsertItem(item("1", "a", 2));
        Rest first = rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(full));
        equal(first.shown(), "1=2 2=1 3=1");
        c.upsertItem(item("2", "b", 2));
        c.deleteItem("3", new PartitionKey("c"), new CosmosItemRequestOptions());
        c.createItem(item("4", "d", 1));
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(first.continuation())).shown(), "2=2 4=1");
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(late)).shown(), "1=2 2=2 4=1");
        Instant now = Instant.now();
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(now.minusSeconds(3600), full)).shown(), "1=2 2=2 4=1");
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(now.plusSeconds(3600), full)).shown(), "");
        equal(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forLogicalPartition(new PartitionKey("b")))).shown(), "2=2");
        List<String> parts = new ArrayList<>();
        for (FeedRange range : c.getFeedRanges()) {
            parts.add(rest(c, CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range).setMaxItemCount(1)).shown());
        }
        equal(String.join(" ", parts).trim().split(" +").length, 3);
    }

    /** host is a processor of the changes in a container, with its leases beside it. See takes each item in its turn. */
    static ChangeFeedProcessor host(String name, Harness.Home h, boolean alone, Consumer<JsonNode> see) {
        ChangeFeedProcessorBuilder builder = new ChangeFeedProcessorBuilder().hostName(name).feedContainer(h.async())
            .leaseContainer(asyncClient().getDatabase(h.database().getId()).getContainer("leases"))
            .options(new ChangeFeedProcessorOptions().setStartFromBeginning(true).setFeedPollDelay(Duration.ofMillis(100))
                .setLeaseAcquireInterval(Duration.ofSeconds(1)).setMaxItemCount(3));
        builder = alone ? builder.handleChanges(items -> items.forEach(see))
            : builder.handleLatestVersionChanges(items -> items.forEach(i -> {
                check(i.getChangeFeedMetaData().getLogSequenceNumber() > 0, "a change without a place");
                see.accept(i.getCurrent());
            }));
        return builder.buildChangeFeedProcessor();
    }

    static void leases(Harness.Home h) {
        h.database().createContainer(new CosmosContainerProperties("leases", "/id"));
    }

    private static void processor(boolean alone) throws Exception {
        Harness.Home h = home();
        leases(h);
        Map<String, Integer> want = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            h.items().createItem(item("i" + i, "p" + i, i));
            want.put("i" + i, i);
        }
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        Consumer<JsonNode> see = i -> seen.put(i.get("id").asText(), i.get("n").asInt());
        ChangeFeedProcessor one = host("one", h, alone, see);
        one.start().block(Harness.PATIENCE);
        eventually("all items are seen", () -> seen.equals(want));
        h.items().upsertItem(item("i3", "p3", 33));
        eventually("a change is seen", () -> seen.get("i3") == 33);
        // The leases say how far it is.
        eventually("nothing is left", () -> one.getCurrentState().block(Harness.PATIENCE).stream().allMatch(s -> s.getEstimatedLag() == 0));
        one.stop().block(Harness.PATIENCE);
        // Another goes on where it ended.
        seen.clear();
        h.items().createItem(item("late", "late", 1));
        ChangeFeedProcessor two = host("two", h, alone, see);
        two.start().block(Harness.PATIENCE);
        eventually("what came between them is seen", () -> seen.containsKey("late"));
        equal(seen, Map.of("late", 1));
        two.stop().block(Harness.PATIENCE);
    }

    private static void twoHosts() throws Exception {
        Harness.Home h = home();
        leases(h);
        Map<String, String> seen = new ConcurrentHashMap<>();
        ChangeFeedProcessor one = host("one", h, false, i -> seen.put(i.get("id").asText(), "one"));
        ChangeFeedProcessor two = host("two", h, false, i -> seen.put(i.get("id").asText(), "two"));
        one.start().block(Harness.PATIENCE);
        two.start().block(Harness.PATIENCE);
        int[] n = {0};
        eventually("both see changes", () -> {
            for (int i = 0; i < 12; i++) {
                h.items().createItem(item("i" + n[0]++, "p" + i, 1));
            }
            Thread.sleep(200);
            return new TreeSet<>(seen.values()).equals(new TreeSet<>(List.of("one", "two")));
        });
        eventually("every item is seen", () -> seen.size() == n[0]);
        one.stop().block(Harness.PATIENCE);
        two.stop().block(Harness.PATIENCE);
    }
}
