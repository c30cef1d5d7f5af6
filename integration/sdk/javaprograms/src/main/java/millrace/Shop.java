package millrace;

import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.spring.data.cosmos.config.AbstractCosmosConfiguration;
import com.azure.spring.data.cosmos.config.CosmosConfig;
import com.azure.spring.data.cosmos.core.mapping.CompositeIndex;
import com.azure.spring.data.cosmos.core.mapping.CompositeIndexPath;
import com.azure.spring.data.cosmos.core.mapping.Container;
import com.azure.spring.data.cosmos.core.mapping.CosmosIndexingPolicy;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKey;
import com.azure.spring.data.cosmos.core.mapping.CosmosUniqueKeyPolicy;
import com.azure.spring.data.cosmos.core.mapping.GeneratedValue;
import com.azure.spring.data.cosmos.core.mapping.PartitionKey;
import com.azure.spring.data.cosmos.repository.CosmosRepository;
import com.azure.spring.data.cosmos.repository.Query;
import com.azure.spring.data.cosmos.repository.ReactiveCosmosRepository;
import com.azure.spring.data.cosmos.repository.config.EnableCosmosRepositories;
import com.azure.spring.data.cosmos.repository.config.EnableReactiveCosmosRepositories;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.repository.query.Param;
import reactor.core.publisher.Flux;

/** The entities and repositories of a shop, as an application on Spring Data declares them. */
final class Shop {
    private Shop() {}

    /** DATABASE is made by the first repository. */
    static final String DATABASE = "spring" + ProcessHandle.current().pid() + "-" + Long.toString(System.currentTimeMillis(), 36);

    @Configuration
    @EnableCosmosRepositories(considerNestedRepositories = true)
    @EnableReactiveCosmosRepositories(considerNestedRepositories = true)
    public static class Config extends AbstractCosmosConfiguration {
        @Bean
        public CosmosClientBuilder builder() {
            return Harness.builder(Harness.KEY);
        }

        @Override
        protected String getDatabaseName() {
            return DATABASE;
        }

        @Bean
        @Override
        public CosmosConfig cosmosConfig() {
            return CosmosConfig.builder().enableQueryMetrics(true).maxDegreeOfParallelism(-1).build();
        }
    }

    /** Address stands in an order. */
    public static class Address {
        public String city;
    }

    @Container(containerName = "orders", ru = "700")
    @CosmosIndexingPolicy(compositeIndexes = @CompositeIndex(paths = {
        @CompositeIndexPath(path = "/status"), @CompositeIndexPath(path = "/total", order = CompositePathSortOrder.DESCENDING)}))
    @CosmosUniqueKeyPolicy(uniqueKeys = @CosmosUniqueKey(paths = "/number"))
    public static class Order {
        @Id
        public String id;
        @PartitionKey
        public String customer;
        public String number;
        public String status;
        public double total;
        public boolean paid;
        public String note;
        public List<String> tags;
        public Address address;
    }

    public interface Orders extends CosmosRepository<Order, String> {
        List<Order> findByCustomer(String customer);

        List<Order> findByCustomerAndStatus(String customer, String status);

        List<Order> findByStatusOrTotalLessThanEqual(String status, double total);

        List<Order> findByTotalBetween(double low, double high);

        List<Order> findByTotalGreaterThanOrderByTotalDesc(double low);

        List<Order> findByStatusIn(Collection<String> statuses);

        List<Order> findByStatusNotIn(Collection<String> statuses);

        List<Order> findByStatusNot(String status);

        List<Order> findByNoteIsNull();

        List<Order> findByNoteIsNotNull();

        List<Order> findByPaidTrue();

        List<Order> findByNumberStartingWith(String prefix);

        List<Order> findByNumberEndingWith(String suffix);

        List<Order> findByNumberContaining(String part);

        List<Order> findByNumberNotContaining(String part);

        List<Order> findByStatusIgnoreCase(String status);

        List<Order> findByNumberStartingWithIgnoreCase(String prefix);

        List<Order> findByAddressCity(String city);

        Optional<Order> findByNumber(String number);

        long countByStatus(String status);

        boolean existsByNumber(String number);

        List<Order> deleteByStatus(String status);

        Page<Order> findByStatus(String status, Pageable at);

        Slice<Order> findByPaid(boolean paid, Pageable at);

        @Query("SELECT * FROM o WHERE o.customer = @customer AND o.total > @low")
        List<Order> above(@Param("customer") String customer, @Param("low") double low);

        @Query("SELECT VALUE o.number FROM o WHERE ARRAY_CONTAINS(o.tags, @tag)")
        List<String> tagged(@Param("tag") String tag);

        @Query("SELECT VALUE COUNT(1) FROM o WHERE o.status IN (@statuses)")
        long counted(@Param("statuses") Collection<String> statuses);

        @Query("SELECT VALUE SUM(o.total) FROM o")
        List<Double> sum();

        @Query("SELECT DISTINCT VALUE o.status FROM o")
        List<String> statuses();

        @Query("SELECT o.status, COUNT(1) AS n, SUM(o.total) AS total FROM o GROUP BY o.status")
        List<JsonNode> perStatus();

        @Query("SELECT * FROM o WHERE o.paid = @paid")
        List<Order> sorted(@Param("paid") boolean paid, Sort by);

        @Query("SELECT * FROM o WHERE o.paid = @paid")
        Page<Order> paged(@Param("paid") boolean paid, Pageable at);
    }

    /** Account has a version, the etag of its item. */
    @Container(containerName = "accounts")
    public static class Account {
        @Id
        @PartitionKey
        public String id;
        public int balance;
        @Version
        public String version;
    }

    public interface Accounts extends CosmosRepository<Account, String> {}

    /** Visit has a key of two levels, and an id that Spring Data makes. */
    @Container(containerName = "visits", hierarchicalPartitionKeyPaths = {"/tenant", "/user"}, timeToLive = 3600)
    public static class Visit {
        @Id
        @GeneratedValue
        public String id;
        public String tenant;
        public String user;
        public int pages;
    }

    public interface Visits extends CosmosRepository<Visit, String> {
        List<Visit> findByTenant(String tenant);
    }

    /** Login is gone after a second, and has no partition key that is named. */
    @Container(containerName = "logins", timeToLive = 1)
    public static class Login {
        @Id
        public String id;
    }

    public interface Logins extends CosmosRepository<Login, String> {}

    /** Event is stored and found without blocking. */
    @Container(containerName = "events")
    public static class Event {
        @Id
        public String id;
        @PartitionKey
        public String source;
        public int n;
    }

    public interface Events extends ReactiveCosmosRepository<Event, String> {
        Flux<Event> findBySourceOrderByNDesc(String source);

        @Query("SELECT VALUE MAX(e.n) FROM e")
        Flux<Integer> largest();
    }
}
