package millrace;

import static millrace.Harness.JSON;
import static millrace.Harness.check;
import static millrace.Harness.equal;
import static millrace.Harness.eventually;
import static millrace.Harness.item;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Going writes, queries and processes changes while somebody else splits the container's ranges, has the server start again or moves
 * owners, until its input ends. Then every acknowledged write must be in the container and have come by the processor.
 */
final class Going {
    /** UNBROKEN says that nothing may fail. */
    private static final boolean UNBROKEN = System.getenv("MILLRACE_UNBROKEN") != null;

    private Going() {}

    static void run() throws Exception {
        Harness.Home h = Harness.home();
        Changes.leases(h);
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        // What comes again after a lease was lost may be older than what came before.
        ChangeFeedProcessor processor = Changes.host("one", h, false, i -> seen.merge(i.get("id").asText(), i.get("n").asInt(), Math::max));
        processor.start().block(Harness.PATIENCE);
        Map<String, Integer> written = new ConcurrentHashMap<>();
        AtomicInteger rounds = new AtomicInteger();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
        System.out.println(JSON.createObjectNode().put("database", h.database().getId()));
        input.start();
        while (input.isAlive()) {
            int n = rounds.incrementAndGet();
            for (int i = 0; i < 20; i++) {
                String id = "i" + i;
                int key = i;
                goesOn(() -> h.items().upsertItem(item(id, "p" + key, n)));
                written.put(id, n);
            }
            List<Integer> got = new ArrayList<>();
            goesOn(() -> {
                got.clear();
                h.items().queryItems("SELECT c.n FROM c ORDER BY c.pk", new CosmosQueryRequestOptions(), JsonNode.class)
                    .iterableByPage(7).forEach(p -> p.getResults().forEach(r -> got.add(r.get("n").asInt())));
            });
            check(got.size() == 20 && got.stream().allMatch(v -> v == n), "round", n, "finds", got);
            System.out.println(JSON.createObjectNode().put("round", n));
        }
        eventually("the processor has seen the last versions", () -> new TreeMap<>(seen).equals(new TreeMap<>(written)));
        equal((int) h.items().queryItems("SELECT * FROM c", new CosmosQueryRequestOptions(), JsonNode.class).stream().count(), 20);
        processor.stop().block(Harness.PATIENCE);
        System.out.println(JSON.createObjectNode().put("done", rounds.get()));
    }

    /** goesOn tries again what the server could not take, as an application does, unless nothing may fail. */
    private static void goesOn(Harness.Body body) throws Exception {
        for (Instant end = Instant.now().plus(Harness.PATIENCE);; Thread.sleep(100)) {
            try {
                body.run();
                return;
            } catch (CosmosException e) {
                int status = e.getStatusCode();
                if (UNBROKEN || status >= 400 && status < 408 || status == 409 || status == 412 || Instant.now().isAfter(end)) {
                    throw e;
                }
            }
        }
    }
}
