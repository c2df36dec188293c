import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * Counts the records of a topic by key with Kafka Streams, until the offsets of all are committed.
 * Arguments: brokers, topic, application id, folder, threads, bytes of the cache.
 * Prints "counted SECONDS SUM": from the moment that it runs, and the sum of all counts.
 */
public class Count {
    public static class Store implements RocksDBConfigSetter {
        @Override
        public void setConfig(String name, Options options, Map<String, Object> configs) {
            options.setWriteBufferSize(64 << 20);
        }

        @Override
        public void close(String name, Options options) {
        }
    }

    public static void main(String[] args) throws Exception {
        String brokers = args[0], topic = args[1], id = args[2];
        Properties p = new Properties();
        p.put("bootstrap.servers", brokers);
        p.put("application.id", id);
        p.put("state.dir", Path.of(args[3]).toString());
        p.put("num.stream.threads", Integer.parseInt(args[4]));
        p.put("statestore.cache.max.bytes", Long.parseLong(args[5]));
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("commit.interval.ms", 1000L);
        p.put("replication.factor", 1);
        p.put("rocksdb.config.setter", Store.class);
        p.put("main.consumer.auto.offset.reset", "earliest");
        p.put("main.consumer.max.poll.records", 20000);
        p.put("main.consumer.max.partition.fetch.bytes", 4 << 20);
        p.put("producer.batch.size", 256 << 10);
        p.put("producer.buffer.memory", 128L << 20);
        p.put("producer.compression.type", "lz4");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .count(Materialized.<byte[], Long, KeyValueStore<Bytes, byte[]>>as("users")
                .withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long()).withCachingEnabled());

        CountDownLatch running = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) running.countDown();
            if (now == KafkaStreams.State.ERROR) System.exit(1);
        });
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            System.exit(1);
            return null;
        });
        streams.start();
        running.await();
        long began = System.nanoTime();
        try (Admin admin = Admin.create(p)) {
            Map<TopicPartition, Long> ends = ends(admin, topic);
            while (!isCommitted(admin, id, ends)) Thread.sleep(50);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        long sum = 0;
        var store = streams.store(StoreQueryParameters.fromNameAndType("users", QueryableStoreTypes.<byte[], Long>keyValueStore()));
        try (var all = store.all()) {
            while (all.hasNext()) sum += all.next().value;
        }
        System.out.printf("counted %.3f %d%n", seconds, sum);
        streams.close();
    }

    static Map<TopicPartition, Long> ends(Admin admin, String topic) throws Exception {
        var description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        description.partitions().forEach(part -> latest.put(new TopicPartition(topic, part.partition()), OffsetSpec.latest()));
        Map<TopicPartition, Long> ends = new HashMap<>();
        admin.listOffsets(latest).all().get().forEach((part, end) -> ends.put(part, end.offset()));
        return ends;
    }

    static boolean isCommitted(Admin admin, String group, Map<TopicPartition, Long> ends) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        for (var end : ends.entrySet()) {
            OffsetAndMetadata at = committed.get(end.getKey());
            if (end.getValue() > 0 && (at == null || at.offset() < end.getValue())) return false;
        }
        return true;
    }
}
