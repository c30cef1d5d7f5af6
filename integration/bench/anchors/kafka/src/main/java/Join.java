import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Join keeps in each product the name of its category, by Kafka Streams' foreign-key join with exactly_once_v2. It is one process: the
 * broker, the streams, and the client that writes and reads, which talk over loopback. Its argument is an empty directory for all data.
 *
 * <p>It does what it reads from standard input, a command a line, and answers with a line of JSON where a command asks for one:
 *
 * <pre>
 * p JSON         store a product
 * c JSON         store a category
 * await N        answer when N products were joined and committed
 * rename N JSON  store a category, and answer when N products with its name were committed
 * copies         print every product that was committed, those of one id in their order, and then answer
 * </pre>
 *
 * <p>It generates no data and searches texts for fields rather than parse them, which works for the bench's items and is the least that
 * can be done.
 */
public final class Join {
    private static final String CATEGORIES = "categories";
    private static final String PRODUCTS = "products";
    private static final String JOINED = "joined";
    private static final int PARTITIONS = Runtime.getRuntime().availableProcessors();
    private static final Duration POLL = Duration.ofMillis(100);
    /** Milliseconds after which a request has failed: a busy machine may take long. */
    private static final int PATIENCE = 300_000;
    /** The bytes of a batch, which is synced by itself. The default of 16 KiB would hold some fifteen products. */
    private static final int BATCH = 1 << 19;

    private final PrintStream answers;
    private final String servers;
    private final KafkaProducer<String, byte[]> producer;
    private final KafkaConsumer<String, byte[]> consumer;

    private Join(PrintStream answers, String servers) {
        this.answers = answers;
        this.servers = servers;
        producer = new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", servers, "acks", "all", "batch.size", BATCH,
                "delivery.timeout.ms", PATIENCE, "max.block.ms", PATIENCE), new StringSerializer(), new ByteArraySerializer());
        consumer = reader();
    }

    public static void main(String[] args) {
        try {
            PrintStream answers = new PrintStream(System.out, false, ISO_8859_1);
            System.setOut(System.err); // who logs may not answer
            new Join(answers, start(Path.of(args[0]))).serve();
            Runtime.getRuntime().halt(0); // whoever began this removes the data
        } catch (Throwable e) {
            fail(e);
        }
    }

    private static void fail(Throwable e) {
        e.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    /** Starts the broker and the streams, and returns the broker's address. */
    private static String start(Path dir) throws Exception {
        String servers = startBroker(dir);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers, "default.api.timeout.ms", PATIENCE))) {
            admin.createTopics(List.of(
                new NewTopic(CATEGORIES, PARTITIONS, (short) 1).configs(Map.of("cleanup.policy", "compact")),
                new NewTopic(PRODUCTS, PARTITIONS, (short) 1).configs(Map.of("cleanup.policy", "compact")),
                new NewTopic(JOINED, PARTITIONS, (short) 1))).all().get();
        }
        startStreams(dir, servers);
        return servers;
    }

    private static String startBroker(Path dir) throws Exception {
        String broker;
        String controller;
        try (ServerSocket a = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
            ServerSocket b = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            broker = "127.0.0.1:" + a.getLocalPort();
            controller = "127.0.0.1:" + b.getLocalPort();
        }
        Properties p = new Properties();
        p.putAll(Map.of(
            "process.roles", "broker,controller",
            "node.id", "1",
            "controller.quorum.voters", "1@" + controller,
            "controller.listener.names", "CONTROLLER",
            "listeners", "PLAINTEXT://" + broker + ",CONTROLLER://" + controller,
            "advertised.listeners", "PLAINTEXT://" + broker,
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs", dir.resolve("log").toString(),
            "log.retention.ms", "-1"));
        // By default Kafka syncs nothing before it acknowledges: it counts on replicas. There are none, so every append is synced
        // first, those to the topics of offsets and transactions included.
        p.put("log.flush.interval.messages", "1");
        // One node, and no wait for others that might join the group.
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
            p.put(topic + ".replication.factor", "1");
        }
        p.put("transaction.state.log.min.isr", "1");
        p.put("share.coordinator.state.topic.min.isr", "1");
        p.put("offsets.topic.num.partitions", "1");
        p.put("transaction.state.log.num.partitions", "" + PARTITIONS);
        p.put("group.initial.rebalance.delay.ms", "0");
        Path file = dir.resolve("server.properties");
        try (OutputStream out = new FileOutputStream(file.toFile())) {
            p.store(out, null);
        }
        if (StorageTool.execute(new String[] {"format", "-t", Uuid.randomUuid().toString(), "-c", file.toString()}, System.err) != 0) {
            throw new IOException("the broker's directory was not formatted");
        }
        new KafkaRaftServer(KafkaConfig.fromProps(p), Time.SYSTEM).startup();
        return broker;
    }

    private static void startStreams(Path dir, String servers) {
        Properties p = new Properties();
        p.put("producer.batch.size", BATCH);
        p.putAll(Map.of(
            "application.id", "join",
            "bootstrap.servers", servers,
            "state.dir", dir.resolve("state").toString(),
            "processing.guarantee", "exactly_once_v2",
            "num.stream.threads", PARTITIONS,
            "replication.factor", 1,
            // The topics of products and categories are the changelogs of their tables.
            "topology.optimization", "all",
            // A cache would keep a rename until the next commit.
            "statestore.cache.max.bytes", 0,
            // A rename is one step of its task, however many products there are.
            "producer.transaction.timeout.ms", 600_000));
        StreamsBuilder builder = new StreamsBuilder();
        var consumed = Consumed.with(Serdes.String(), Serdes.ByteArray());
        var categories = builder.table(CATEGORIES, consumed);
        builder.table(PRODUCTS, consumed)
            .join(categories, product -> field(product, "categoryId"), Join::joined)
            .toStream()
            .to(JOINED, Produced.with(Serdes.String(), Serdes.ByteArray()));
        KafkaStreams streams = new KafkaStreams(builder.build(p), p);
        streams.setUncaughtExceptionHandler(e -> {
            fail(e);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    /** The value of a field of text in compact JSON that escapes nothing. */
    private static String field(byte[] json, String name) {
        String text = new String(json, ISO_8859_1);
        int from = valueOf(text, name);
        return text.substring(from, text.indexOf('"', from));
    }

    private static int valueOf(String text, String name) {
        String key = '"' + name + "\":\"";
        int at = text.indexOf(key);
        if (at < 0) {
            throw new IllegalArgumentException("no field " + name + " in " + text);
        }
        return at + key.length();
    }

    private static byte[] joined(byte[] product, byte[] category) {
        String text = new String(product, ISO_8859_1);
        int from = valueOf(text, "categoryName");
        return (text.substring(0, from) + field(category, "name") + text.substring(text.indexOf('"', from))).getBytes(ISO_8859_1);
    }

    /** A consumer of what was joined and committed, from the beginning. */
    private KafkaConsumer<String, byte[]> reader() {
        KafkaConsumer<String, byte[]> c = new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", servers, "isolation.level", "read_committed", "max.poll.records", 10_000,
                "default.api.timeout.ms", PATIENCE),
            new StringDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> all = IntStream.range(0, PARTITIONS).mapToObj(n -> new TopicPartition(JOINED, n)).toList();
        c.assign(all);
        c.seekToBeginning(all);
        return c;
    }

    private void serve() throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, ISO_8859_1), 1 << 20);
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = line.split(" ", 2);
            switch (words[0]) {
                case "p" -> send(PRODUCTS, words[1]);
                case "c" -> send(CATEGORIES, words[1]);
                case "await" -> {
                    producer.flush();
                    await(Integer.parseInt(words[1]), "");
                }
                case "rename" -> {
                    String[] rest = words[1].split(" ", 2);
                    Future<?> sent = send(CATEGORIES, rest[1]);
                    producer.flush(); // nothing else is to come that it could wait for
                    sent.get();
                    await(Integer.parseInt(rest[0]), '"' + field(rest[1].getBytes(ISO_8859_1), "name") + '"');
                }
                case "copies" -> copies();
                default -> throw new IllegalArgumentException("no command is called " + words[0]);
            }
        }
    }

    private Future<?> send(String topic, String json) {
        byte[] value = json.getBytes(ISO_8859_1);
        return producer.send(new ProducerRecord<>(topic, field(value, "id"), value), (at, e) -> {
            if (e != null) {
                fail(e);
            }
        });
    }

    /** Answers when so many products whose text has a part in it were committed. A product may come more than once. */
    private void await(int products, String part) {
        Set<String> seen = new HashSet<>();
        while (seen.size() < products) {
            for (ConsumerRecord<String, byte[]> r : consumer.poll(POLL)) {
                if (new String(r.value(), ISO_8859_1).contains(part)) {
                    seen.add(r.key());
                }
            }
        }
        answer(seen.size());
    }

    /** Prints all that was committed. */
    private void copies() {
        int printed = 0;
        try (KafkaConsumer<String, byte[]> all = reader()) {
            Map<TopicPartition, Long> ends = all.endOffsets(all.assignment());
            while (ends.entrySet().stream().anyMatch(end -> all.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<String, byte[]> r : all.poll(POLL)) {
                    answers.write(r.value(), 0, r.value().length);
                    answers.write('\n');
                    printed++;
                }
            }
        }
        answer(printed);
    }

    private void answer(int copies) {
        answers.print("{\"copies\":" + copies + "}\n");
        answers.flush();
    }
}
