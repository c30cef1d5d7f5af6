package millrace;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.TreeMap;
import java.util.regex.Pattern;

/** What the cases share: a list of them, clients, and expectations that say what they saw. */
final class Harness {
    static final String ENDPOINT = System.getenv("MILLRACE_ENDPOINT");
    static final String KEY = System.getenv("MILLRACE_KEY");
    static final String READ_ONLY_KEY = System.getenv("MILLRACE_READ_ONLY_KEY");
    static final int PARTITIONS = Integer.parseInt(System.getenv("MILLRACE_PARTITIONS"));
    /** STRICT tells whether the gateway refuses what Cosmos DB refuses. */
    static final boolean STRICT = Boolean.parseBoolean(System.getenv("MILLRACE_STRICT"));
    static final ObjectMapper JSON = new ObjectMapper();

    /** PATIENCE is how long a case waits for what must happen at last. */
    static final Duration PATIENCE = Duration.ofMinutes(2);

    private static CosmosClient client;
    private static CosmosAsyncClient asyncClient;
    private static int made;

    private Harness() {}

    /** A part of a case, which may fail in any way. */
    interface Body {
        void run() throws Exception;
    }

    /** A condition that is asked for again and again. */
    interface Condition {
        boolean holds() throws Exception;
    }

    record Case(String name, Body body) {}

    static final List<Case> CASES = new ArrayList<>();

    /** test adds a case. */
    static void test(String name, Body body) {
        CASES.add(new Case(name, body));
    }

    /** runAll runs all cases whose name matches, one after the other, and prints a line of JSON for each, of which a Go test is made. */
    static void runAll(String pattern) {
        Pattern only = Pattern.compile(pattern);
        for (Case c : CASES) {
            if (!only.matcher(c.name()).find()) {
                continue;
            }
            long began = System.nanoTime();
            StringWriter error = new StringWriter();
            try {
                c.body().run();
            } catch (Throwable e) {
                e.printStackTrace(new PrintWriter(error));
            }
            System.out.println(JSON.createObjectNode().put("name", c.name()).put("error", error.toString())
                .put("milliseconds", (System.nanoTime() - began) / 1_000_000));
        }
    }

    static CosmosClientBuilder builder(String key) {
        return new CosmosClientBuilder().endpoint(ENDPOINT).key(key).gatewayMode().contentResponseOnWriteEnabled(true);
    }

    /** client is the one of all cases that need none of their own. */
    static CosmosClient client() {
        return client = client == null ? builder(KEY).buildClient() : client;
    }

    static CosmosAsyncClient asyncClient() {
        return asyncClient = asyncClient == null ? builder(KEY).buildAsyncClient() : asyncClient;
    }

    /** Home is a container in a database of its own, for both clients. */
    record Home(CosmosDatabase database, CosmosContainer items, CosmosAsyncContainer async) {}

    /** home makes a container in a database for the case alone. */
    static Home home(CosmosContainerProperties properties) {
        String id = "java" + ProcessHandle.current().pid() + "-" + Long.toString(System.currentTimeMillis(), 36) + "-" + made++;
        client().createDatabase(id);
        CosmosDatabase database = client().getDatabase(id);
        database.createContainer(properties);
        return new Home(database, database.getContainer(properties.getId()), asyncClient().getDatabase(id).getContainer(properties.getId()));
    }

    static Home home() {
        return home(new CosmosContainerProperties("items", "/pk"));
    }

    static ObjectNode item(String id, Object pk, int n) {
        return JSON.createObjectNode().put("id", id).put("n", n).set("pk", JSON.valueToTree(pk));
    }

    static void equal(Object got, Object want, Object... what) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(Arrays.toString(what) + ": got " + got + ", want " + want);
        }
    }

    static void check(boolean holds, Object... what) {
        if (!holds) {
            throw new AssertionError(Arrays.toString(what));
        }
    }

    /** refused expects an error of the SDK's own, with a status and a message. */
    static CosmosException refused(int status, Body body) throws Exception {
        try {
            body.run();
        } catch (CosmosException e) {
            if (e.getStatusCode() != status) {
                throw new AssertionError("status " + e.getStatusCode() + ", want " + status, e);
            }
            check(e.getMessage() != null && !e.getMessage().isEmpty(), "an error without a message");
            return e;
        }
        throw new AssertionError("no error, want " + status);
    }

    /** eventually waits until a condition holds. */
    static void eventually(String what, Condition condition) throws Exception {
        for (Instant end = Instant.now().plus(PATIENCE); !condition.holds(); Thread.sleep(20)) {
            check(Instant.now().isBefore(end), "not after " + PATIENCE + ": " + what);
        }
    }

    /** canonical prints JSON so that equal values print alike, however their numbers were written. */
    static String canonical(JsonNode v) {
        if (v.isObject()) {
            TreeMap<String, String> members = new TreeMap<>();
            v.fieldNames().forEachRemaining(name -> members.put(name, canonical(v.get(name))));
            return members.toString();
        }
        if (v.isArray()) {
            List<String> elements = new ArrayList<>();
            v.forEach(e -> elements.add(canonical(e)));
            return elements.toString();
        }
        return v.isNumber() ? v.decimalValue().stripTrailingZeros().toPlainString() : v.toString();
    }

    /** ids are those of rows, in their order. */
    static String ids(Iterable<? extends JsonNode> rows) {
        List<String> ids = new ArrayList<>();
        rows.forEach(r -> ids.add(r.get("id").asText()));
        return String.join(" ", ids);
    }
}
