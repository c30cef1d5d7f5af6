package millrace;

import static millrace.Harness.PATIENCE;
import static millrace.Harness.STRICT;
import static millrace.Harness.check;
import static millrace.Harness.client;
import static millrace.Harness.equal;
import static millrace.Harness.eventually;
import static millrace.Harness.test;

import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.spring.data.cosmos.core.CosmosTemplate;
import com.azure.spring.data.cosmos.core.query.CosmosPageRequest;
import com.azure.spring.data.cosmos.exception.CosmosAccessException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.StreamSupport;
import millrace.Shop.Account;
import millrace.Shop.Accounts;
import millrace.Shop.Event;
import millrace.Shop.Events;
import millrace.Shop.Login;
import millrace.Shop.Logins;
import millrace.Shop.Order;
import millrace.Shop.Orders;
import millrace.Shop.Visit;
import millrace.Shop.Visits;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;

/** Spring Data's repositories on the SDK, without Spring Boot. */
final class SpringData {
    private static final Sort BY_TOTAL = Sort.by(Sort.Direction.DESC, "total");
    private static ConfigurableApplicationContext context;

    private SpringData() {}

    static void add() {
        test("spring data: containers are made", SpringData::containers);
        test("spring data: save, find and delete", SpringData::items);
        test("spring data: many at once", SpringData::many);
        test("spring data: patch", SpringData::patch);
        test("spring data: queries by the names of methods", SpringData::derived);
        test("spring data: queries by text", SpringData::annotated);
        test("spring data: sort", SpringData::sort);
        test("spring data: pages and slices", SpringData::pages);
        test("spring data: versions", SpringData::versions);
        test("spring data: what is taken", SpringData::taken);
        test("spring data: keys of two levels and generated ids", SpringData::hierarchical);
        test("spring data: time to live without a key", SpringData::timeToLive);
        test("spring data: reactive", SpringData::reactive);
    }

    /** bean is one of the application that all cases share. */
    private static <T> T bean(Class<T> type) {
        context = context == null ? new AnnotationConfigApplicationContext(Shop.Config.class) : context;
        return context.getBean(type);
    }

    private static Order order(int n) {
        Order o = new Order();
        o.id = "o" + n;
        o.customer = "c" + n % 7;
        o.number = (n % 2 == 0 ? "EVEN-" : "odd-") + n;
        o.status = List.of("new", "sent", "done").get(n % 3);
        o.total = n * 10.5;
        o.paid = n % 4 == 0;
        o.note = n % 5 == 0 ? null : "note " + n;
        o.tags = List.of("t" + n % 3, "all");
        o.address = new Shop.Address();
        o.address.city = n % 2 == 0 ? "Köln" : "Bonn";
        return o;
    }

    /** orders is the repository with 20 orders, o0 to o19. */
    private static Orders orders() {
        Orders orders = bean(Orders.class);
        orders.deleteAll();
        List<Order> all = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            all.add(order(i));
        }
        orders.saveAll(all);
        equal(orders.count(), 20L);
        return orders;
    }

    private static <T> List<T> list(Iterable<T> all) {
        return StreamSupport.stream(all.spliterator(), false).toList();
    }

    /** numbers are those of orders: those of a query without an order are sorted. */
    private static String numbers(Iterable<Order> orders) {
        return String.join(" ", list(orders).stream().map(o -> o.id.substring(1)).mapToInt(Integer::parseInt).sorted().mapToObj(Integer::toString).toList());
    }

    private static String inOrder(Iterable<Order> orders) {
        return String.join(" ", list(orders).stream().map(o -> o.id.substring(1)).toList());
    }

    private static void refused(int status, Harness.Body body) throws Exception {
        try {
            body.run();
        } catch (CosmosAccessException e) {
            equal(((CosmosException) e.getCause()).getStatusCode(), status, e);
            return;
        }
        throw new AssertionError("no error, want " + status);
    }

    private static void containers() {
        bean(Orders.class).save(order(1));
        CosmosDatabase database = client().getDatabase(Shop.DATABASE);
        equal(database.readAllContainers().stream().map(CosmosContainerProperties::getId).sorted().toList(), List.of("accounts", "events", "logins", "orders", "visits"));
        CosmosContainerProperties orders = database.getContainer("orders").read().getProperties();
        equal(orders.getPartitionKeyDefinition().getPaths(), List.of("/customer"));
        equal(orders.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths(), List.of("/number"));
        equal(orders.getIndexingPolicy().getIncludedPaths().get(0).getPath(), "/*");
        equal(orders.getIndexingPolicy().getCompositeIndexes().get(0).get(1).getPath(), "/total");
        equal(database.getContainer("orders").readThroughput().getProperties().getManualThroughput(), 700);
        CosmosContainerProperties visits = database.getContainer("visits").read().getProperties();
        equal(visits.getPartitionKeyDefinition().getPaths(), List.of("/tenant", "/user"));
        equal(visits.getDefaultTimeToLiveInSeconds(), 3600);
        // Another process of the application finds all of them.
        try (var another = new AnnotationConfigApplicationContext(Shop.Config.class)) {
            equal(another.getBean(Orders.class).findById("o1", new PartitionKey("c1")).orElseThrow().number, "odd-1");
        }
    }

    private static void items() throws Exception {
        Orders orders = bean(Orders.class);
        orders.deleteAll();
        equal(orders.count(), 0L);
        Order saved = orders.save(order(3));
        equal(saved.total, 31.5);
        equal(orders.findById("o3").orElseThrow().address.city, "Bonn"); // a query over all keys
        equal(orders.findById("o3", new PartitionKey("c3")).orElseThrow().tags, List.of("t0", "all"));
        check(orders.findById("o3", new PartitionKey("another")).isEmpty() && orders.findById("none").isEmpty(), "an item that is not there");
        check(orders.existsById("o3") && !orders.existsById("none"), "exists");
        saved.status = "lost";
        orders.save(saved);
        equal(orders.findById("o3").orElseThrow().status, "lost");
        orders.save(order(10));
        equal(numbers(orders.findAll(new PartitionKey("c3"))), "3 10");
        equal(numbers(orders.findAllById(List.of("o3", "o10", "none"))), "3 10");
        orders.deleteById("o10", new PartitionKey("c3"));
        refused(404, () -> orders.deleteById("o10", new PartitionKey("c3")));
        orders.delete(saved);
        refused(404, () -> orders.delete(saved));
        equal(orders.count(), 0L);
    }

    private static void many() {
        Orders orders = orders();
        equal(numbers(orders.findAll()), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19");
        List<Order> some = list(orders.findByCustomer("c1"));
        some.forEach(o -> o.status = "many");
        equal(list(orders.saveAll(some)).size(), 3);
        equal(numbers(orders.findByStatusIn(List.of("many"))), "1 8 15");
        orders.deleteAll(some);
        equal(orders.count(), 17L);
        orders.deleteAll();
        equal(orders.count(), 0L);
    }

    private static void patch() throws Exception {
        Orders orders = orders();
        PartitionKey key = new PartitionKey("c4");
        Order got = orders.save("o4", key, Order.class, CosmosPatchOperations.create().set("/status", "patched").increment("/total", 8.0).add("/tags/0", "first"));
        equal(got.status + got.total + got.tags, "patched50.0[first, t1, all]");
        CosmosPatchItemRequestOptions holds = new CosmosPatchItemRequestOptions().setFilterPredicate("FROM o WHERE o.total = 50");
        orders.save("o4", key, Order.class, CosmosPatchOperations.create().set("/total", 1.0), holds);
        refused(412, () -> orders.save("o4", key, Order.class, CosmosPatchOperations.create().set("/total", 2.0), holds));
        equal(orders.findById("o4", key).orElseThrow().total, 1.0);
    }

    private static void derived() {
        Orders orders = orders();
        equal(numbers(orders.findByCustomer("c2")), "2 9 16");
        equal(numbers(orders.findByCustomerAndStatus("c2", "done")), "2");
        equal(numbers(orders.findByStatusOrTotalLessThanEqual("done", 31.5)), "0 1 2 3 5 8 11 14 17");
        equal(numbers(orders.findByTotalBetween(21, 42)), "2 3 4");
        equal(inOrder(orders.findByTotalGreaterThanOrderByTotalDesc(168)), "19 18 17");
        equal(numbers(orders.findByStatusIn(List.of("new", "none"))), "0 3 6 9 12 15 18");
        equal(numbers(orders.findByStatusNotIn(List.of("new", "sent"))), "2 5 8 11 14 17");
        equal(numbers(orders.findByStatusNot("new")), "1 2 4 5 7 8 10 11 13 14 16 17 19");
        equal(numbers(orders.findByNoteIsNull()), "0 5 10 15");
        equal(orders.findByNoteIsNotNull().size(), 16);
        equal(numbers(orders.findByPaidTrue()), "0 4 8 12 16");
        equal(numbers(orders.findByNumberStartingWith("odd-1")), "1 11 13 15 17 19");
        equal(numbers(orders.findByNumberEndingWith("-3")), "3");
        equal(numbers(orders.findByNumberContaining("N-1")), "10 12 14 16 18");
        equal(numbers(orders.findByNumberNotContaining("1")), "0 2 3 4 5 6 7 8 9");
        equal(numbers(orders.findByStatusIgnoreCase("DONE")), "2 5 8 11 14 17");
        equal(numbers(orders.findByNumberStartingWithIgnoreCase("even-1")), "10 12 14 16 18");
        equal(orders.findByAddressCity("Köln").size(), 10);
        equal(orders.findByNumber("EVEN-6").orElseThrow().id, "o6");
        check(orders.findByNumber("none").isEmpty(), "one that is not there");
        equal(orders.countByStatus("sent"), 7L);
        check(orders.existsByNumber("odd-19") && !orders.existsByNumber("odd-20"), "exists");
        equal(numbers(orders.deleteByStatus("sent")), "1 4 7 10 13 16 19");
        equal(orders.count(), 13L);
    }

    private static void annotated() {
        Orders orders = orders();
        equal(numbers(orders.above("c2", 30)), "9 16");
        equal(orders.tagged("t0").stream().sorted().toList(), List.of("EVEN-0", "EVEN-12", "EVEN-18", "EVEN-6", "odd-15", "odd-3", "odd-9"));
        equal(orders.counted(List.of("new", "sent")), 14L);
        equal(orders.sum(), List.of(1995.0));
        equal(orders.statuses().stream().sorted().toList(), List.of("done", "new", "sent"));
        Map<String, String> sums = new TreeMap<>();
        orders.perStatus().forEach(r -> sums.put(r.get("status").asText(), r.get("n").asInt() + " " + r.get("total").asDouble()));
        equal(sums, Map.of("new", "7 661.5", "sent", "7 735.0", "done", "6 598.5"));
        equal(inOrder(orders.sorted(true, BY_TOTAL)), "16 12 8 4 0");
        Page<Order> page = orders.paged(false, PageRequest.of(0, 4, BY_TOTAL));
        equal(inOrder(page) + " of " + page.getTotalElements(), "19 18 17 15 of 15");
        equal(inOrder(orders.paged(false, page.nextPageable())), "14 13 11 10");
    }

    private static void sort() throws Exception {
        Orders orders = orders();
        equal(inOrder(orders.findAll(Sort.by("total"))), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19");
        Sort two = Sort.by("status").and(BY_TOTAL);
        equal(inOrder(orders.findAll(two)), "17 14 11 8 5 2 18 15 12 9 6 3 0 19 16 13 10 7 4 1");
        // Without a composite index Cosmos DB refuses it.
        Harness.Body withoutIndex = () -> equal(inOrder(orders.findAll(Sort.by("status", "total"))), "2 5 8 11 14 17 0 3 6 9 12 15 18 1 4 7 10 13 16 19");
        if (STRICT) {
            refused(400, withoutIndex);
        } else {
            withoutIndex.run();
        }
    }

    private static void pages() {
        Orders orders = orders();
        List<String> got = new ArrayList<>();
        for (Pageable at = new CosmosPageRequest(0, 6, null, BY_TOTAL); at != null;) {
            Page<Order> page = orders.findAll(at);
            equal(page.getTotalElements() + " in " + page.getTotalPages(), "20 in 4");
            got.add(inOrder(page));
            at = page.hasNext() ? page.nextPageable() : null;
        }
        equal(got, List.of("19 18 17 16 15 14", "13 12 11 10 9 8", "7 6 5 4 3 2", "1 0"));
        // A page by its number alone, without the continuation of the one before.
        equal(inOrder(orders.findAll(PageRequest.of(2, 6, BY_TOTAL))), "7 6 5 4 3 2");
        Page<Order> sent = orders.findByStatus("sent", PageRequest.of(0, 3, BY_TOTAL));
        equal(inOrder(sent) + " of " + sent.getTotalElements(), "19 16 13 of 7");
        equal(inOrder(orders.findByStatus("sent", sent.nextPageable())), "10 7 4");
        List<Order> all = new ArrayList<>();
        for (Pageable at = new CosmosPageRequest(0, 2, null); at != null;) {
            Slice<Order> slice = orders.findByPaid(true, at);
            check(slice.getNumberOfElements() <= 2, "a slice of", slice.getNumberOfElements());
            all.addAll(slice.getContent());
            at = slice.hasNext() ? slice.nextPageable() : null;
        }
        equal(numbers(all), "0 4 8 12 16");
    }

    private static void versions() throws Exception {
        Accounts accounts = bean(Accounts.class);
        Account first = new Account();
        first.id = "a";
        first.balance = 1;
        Account saved = accounts.save(first); // an upsert with If-Match: null, since it has no version yet
        check(saved.version != null, "an account without a version");
        saved.balance = 2;
        Account second = accounts.save(saved);
        check(!second.version.equals(saved.version), "a version twice");
        equal(accounts.findById("a").orElseThrow().version, second.version);
        refused(412, () -> accounts.save(saved));
        refused(412, () -> accounts.delete(saved));
        refused(412, () -> accounts.save(first));
        // What many at once does not write is left out of what it gives.
        Account other = new Account();
        other.id = "b";
        List<Account> both = list(accounts.saveAll(List.of(saved, other)));
        equal(both.stream().map(a -> a.id).toList(), List.of("b"));
        accounts.deleteAll(List.of(saved, both.get(0)));
        equal(list(accounts.findAll()).stream().map(a -> a.id + a.balance).toList(), List.of("a2"));
        accounts.delete(second);
        equal(accounts.count(), 0L);
    }

    private static void taken() throws Exception {
        Orders orders = orders();
        Order twin = order(27); // of the same customer as order 6
        twin.number = "EVEN-6";
        refused(409, () -> orders.save(twin));
        CosmosTemplate template = bean(CosmosTemplate.class);
        refused(409, () -> template.insert("orders", order(6)));
        equal(orders.count(), 20L);
    }

    private static void hierarchical() {
        Visits visits = bean(Visits.class);
        visits.deleteAll();
        List<Visit> saved = new ArrayList<>();
        for (String of : List.of("x a", "x b", "y a")) {
            Visit v = new Visit();
            v.tenant = of.split(" ")[0];
            v.user = of.split(" ")[1];
            saved.add(visits.save(v));
        }
        check(saved.stream().allMatch(v -> v.id != null && v.id.length() == 36), "no id was made");
        PartitionKey key = new PartitionKeyBuilder().add("x").add("b").build();
        equal(visits.findById(saved.get(1).id, key).orElseThrow().user, "b");
        equal(list(visits.findAll(key)).size(), 1);
        equal(visits.findByTenant("x").stream().map(v -> v.user).sorted().toList(), List.of("a", "b"));
        visits.deleteById(saved.get(1).id, key);
        visits.deleteAll();
        equal(visits.count(), 0L);
    }

    private static void timeToLive() throws Exception {
        Logins logins = bean(Logins.class);
        Login login = new Login();
        login.id = "one";
        equal(logins.save(login).id, "one");
        eventually("the login is gone", () -> logins.count() == 0);
    }

    private static void reactive() {
        Events events = bean(Events.class);
        List<Event> all = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Event e = new Event();
            e.id = "e" + i;
            e.source = "s" + i % 2;
            e.n = i;
            all.add(e);
        }
        equal(events.saveAll(all).collectList().block(PATIENCE).size(), 10);
        equal(events.count().block(PATIENCE), 10L);
        equal(events.findBySourceOrderByNDesc("s1").map(e -> e.n).collectList().block(PATIENCE), List.of(9, 7, 5, 3, 1));
        equal(events.largest().collectList().block(PATIENCE), List.of(9));
        equal(events.findById("e4", new PartitionKey("s0")).block(PATIENCE).n, 4);
        check(events.findById("none", new PartitionKey("s0")).block(PATIENCE) == null, "an event that is not there");
        events.deleteAll().block(PATIENCE);
        equal(events.findAll().collectList().block(PATIENCE), List.of());
    }
}
