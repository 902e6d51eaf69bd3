import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Drives a running broker with Kafka's Java client and checks what comes back.
 * Prints one line a check, "ok NAME" or "FAIL NAME: reason"; exit status 1 when one failed.
 *
 * Usage: java -cp CLASSPATH Check.java BOOTSTRAP [byte]
 *   byte: the broker runs with lab.offsets=byte, so offsets grow but have gaps
 */
public class Check {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final int RECORDS = 300;
    static final long START = 1_700_000_000_000L; // ms

    static String bootstrap;
    static boolean byteOffsets;
    static int failures;

    interface Body {
        void run() throws Exception;
    }

    static void check(String name, Body body) {
        try {
            body.run();
            System.out.println("ok " + name);
        } catch (Throwable t) {
            failures++;
            System.out.println("FAIL " + name + ": " + t);
            t.printStackTrace();
        }
    }

    static void equal(Object want, Object got, String what) {
        if (!Objects.equals(want, got)) {
            throw new AssertionError(what + ": want " + want + ", got " + got);
        }
    }

    static void require(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** The cause that a future fails with; an error when it does not fail so. */
    static void fails(Class<? extends Throwable> want, Future<?> f) throws InterruptedException {
        try {
            f.get();
        } catch (ExecutionException e) {
            require(want.isInstance(e.getCause()), "want " + want.getSimpleName() + ", got " + e.getCause());
            return;
        }
        throw new AssertionError("want " + want.getSimpleName() + ", got success");
    }

    static Map<String, Object> base() {
        Map<String, Object> c = new HashMap<>();
        c.put("bootstrap.servers", bootstrap);
        c.put("request.timeout.ms", 10_000);
        c.put("default.api.timeout.ms", 15_000);
        return c;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... more) {
        Map<String, Object> c = base();
        c.remove("default.api.timeout.ms");
        c.put("delivery.timeout.ms", 15_000);
        c.put("linger.ms", 5);
        for (int i = 0; i < more.length; i += 2) {
            c.put((String) more[i], more[i + 1]);
        }
        return new KafkaProducer<>(c, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> c = base();
        c.put("enable.auto.commit", false);
        c.put("auto.offset.reset", "none");
        c.put("check.crcs", true);
        return new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int partition, int i) {
        byte[] value = i % 7 == 3 ? null : bytes(("value " + i + " ").repeat(i % 20));
        ProducerRecord<byte[], byte[]> r =
            new ProducerRecord<>(topic, partition, START + i, i % 5 == 0 ? null : bytes("key " + i), value);
        if (i % 3 == 0) {
            r.headers().add(new RecordHeader("n", bytes(Integer.toString(i)))).add(new RecordHeader("empty", null));
        }
        return r;
    }

    /** Sends RECORDS records and gives the offsets that the broker answered. */
    static List<Long> produce(String topic, int partition, Object... settings) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> p = producer(settings)) {
            for (int i = 0; i < RECORDS; i++) {
                sent.add(p.send(record(topic, partition, i)));
            }
            p.flush();
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> f : sent) {
            offsets.add(f.get().offset());
        }
        return offsets;
    }

    static List<ConsumerRecord<byte[], byte[]>> consume(TopicPartition tp, long from, int n) {
        List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> c = consumer()) {
            c.assign(List.of(tp));
            c.seek(tp, from);
            for (int polls = 0; got.size() < n && polls < 50; polls++) {
                c.poll(Duration.ofMillis(500)).forEach(got::add);
            }
        }
        require(got.size() >= n, "want " + n + " records from offset " + from + ", got " + got.size());
        return got;
    }

    static void same(ProducerRecord<byte[], byte[]> want, ConsumerRecord<byte[], byte[]> got) {
        String at = "offset " + got.offset();
        require(Arrays.equals(want.key(), got.key()), at + ": key");
        require(Arrays.equals(want.value(), got.value()), at + ": value");
        equal(want.timestamp(), got.timestamp(), at + ": timestamp");
        require(Arrays.equals(want.headers().toArray(), got.headers().toArray()), at + ": headers");
    }

    static void roundTrip(String topic, int partition, Object... settings) throws Exception {
        List<Long> offsets = produce(topic, partition, settings);
        TopicPartition tp = new TopicPartition(topic, partition);
        List<ConsumerRecord<byte[], byte[]>> got = consume(tp, offsets.get(0), RECORDS);
        equal(RECORDS, got.size(), "records");
        for (int i = 0; i < RECORDS; i++) {
            same(record(topic, partition, i), got.get(i));
            equal(offsets.get(i), got.get(i).offset(), "offset of record " + i);
            if (i > 0 && !byteOffsets) {
                equal(offsets.get(i - 1) + 1, offsets.get(i), "offset after " + offsets.get(i - 1));
            }
        }
    }

    static void admin(Admin a, String topic) throws Exception {
        check("describe-cluster", () -> {
            equal(1, a.describeCluster().nodes().get().size(), "nodes");
            require(a.describeCluster().clusterId().get() != null, "no cluster id");
        });
        check("create-topic", () -> {
            NewTopic t = new NewTopic(topic, CODECS.length + 1, (short) 1).configs(Map.of("retention.ms", "-1"));
            a.createTopics(List.of(t)).all().get();
            fails(TopicExistsException.class, a.createTopics(List.of(t)).all());
            fails(InvalidTopicException.class, a.createTopics(List.of(new NewTopic("a/../b", 1, (short) 1))).all());
        });
        check("describe-topic", () -> {
            TopicDescription d = a.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            equal(CODECS.length + 1, d.partitions().size(), "partitions");
            equal(1, d.partitions().get(0).isr().size(), "in-sync replicas");
            fails(UnknownTopicOrPartitionException.class, a.describeTopics(List.of("no-such-topic")).allTopicNames());
        });
        check("alter-config", () -> {
            ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            equal("-1", a.describeConfigs(List.of(r)).all().get().get(r).get("retention.ms").value(), "retention.ms");
            Collection<AlterConfigOp> ops =
                List.of(new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000000"), AlterConfigOp.OpType.SET));
            a.incrementalAlterConfigs(Map.of(r, ops)).all().get();
            equal("2000000", a.describeConfigs(List.of(r)).all().get().get(r).get("max.message.bytes").value(), "max.message.bytes");
        });
        check("log-dirs", () -> require(!a.describeLogDirs(List.of(a.describeCluster().nodes().get().iterator().next().id()))
            .allDescriptions().get().isEmpty(), "no log directory"));
    }

    static void produceAndConsume(String topic) {
        for (int c = 0; c < CODECS.length; c++) {
            int partition = c;
            check("idempotent-" + CODECS[c], () -> roundTrip(topic, partition, "compression.type", CODECS[partition]));
            check("acks-1-" + CODECS[c], () -> roundTrip(topic, partition,
                "compression.type", CODECS[partition], "acks", "1", "enable.idempotence", false));
        }
        check("acks-0", () -> {
            int partition = CODECS.length;
            produce(topic, partition, "acks", "0", "enable.idempotence", false);
            consume(new TopicPartition(topic, partition), 0, RECORDS);
        });
        check("too-large", () -> {
            try (KafkaProducer<byte[], byte[]> p = producer("max.request.size", 8 << 20)) {
                fails(RecordTooLargeException.class, p.send(new ProducerRecord<>(topic, 0, null, new byte[4 << 20])));
            }
        });
        check("transactions-are-refused", () -> {
            try (KafkaProducer<byte[], byte[]> p = producer("transactional.id", "t", "max.block.ms", 3000)) {
                p.initTransactions();
            } catch (KafkaException e) {
                return;
            }
            throw new AssertionError("initTransactions succeeded");
        });
    }

    static void offsets(Admin a, String topic) {
        TopicPartition tp = new TopicPartition(topic, 0);
        check("offsets-for-times", () -> {
            try (KafkaConsumer<byte[], byte[]> c = consumer()) {
                Map<TopicPartition, OffsetAndTimestamp> at = c.offsetsForTimes(Map.of(tp, START + 10));
                equal(START + 10, at.get(tp).timestamp(), "timestamp");
                if (!byteOffsets) {
                    equal(10L, at.get(tp).offset(), "offset");
                }
                same(record(topic, 0, 10), consume(tp, at.get(tp).offset(), 1).get(0));
                equal(null, c.offsetsForTimes(Map.of(tp, START + 1_000_000)).get(tp), "after the last record");
            }
        });
        check("list-offsets", () -> {
            equal(0L, a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset(), "earliest");
            long end = a.listOffsets(Map.of(tp, OffsetSpec.latest())).all().get().get(tp).offset();
            require(byteOffsets ? end > 2 * RECORDS : end == 2 * RECORDS, "latest is " + end);
        });
        check("delete-records", () -> {
            long cut = consume(tp, 0, 100).get(100 - 1).offset();
            if (byteOffsets) {
                return; // a batch is the smallest thing that a byte offset names
            }
            a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(cut))).all().get();
            equal(cut, a.listOffsets(Map.of(tp, OffsetSpec.earliest())).all().get().get(tp).offset(), "earliest");
            equal(cut, consume(tp, cut, 1).get(0).offset(), "first record");
        });
        check("create-partitions", () -> {
            a.createPartitions(Map.of(topic, NewPartitions.increaseTo(8))).all().get();
            equal(8, a.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size(), "partitions");
            roundTrip(topic, 7);
        });
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        byteOffsets = args.length > 1 && args[1].equals("byte");
        String topic = "java-check";
        try (Admin a = Admin.create(base())) {
            admin(a, topic);
            produceAndConsume(topic);
            offsets(a, topic);
            check("delete-topic", () -> {
                String doomed = "java-doomed";
                a.createTopics(List.of(new NewTopic(doomed, Optional.of(1), Optional.empty()))).all().get();
                a.deleteTopics(List.of(doomed)).all().get();
                fails(UnknownTopicOrPartitionException.class, a.describeTopics(List.of(doomed)).allTopicNames());
            });
        }
        System.exit(failures == 0 ? 0 : 1);
    }
}
