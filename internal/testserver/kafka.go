package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A KafkaServer is a private Kafka: one broker that is its own controller.
type KafkaServer struct {
	server
	controller int // port
}

// StartKafka starts a Kafka with its data in dir. Settings are lines of its configuration,
// such as "auto.create.topics.enable=false", or options of Java, which begin with "-" and
// override those for a quick start. PERIGEE_KAFKA_JARS in the environment names
// the folder with its jars; "tools/setup.sh kafka" downloads them.
func StartKafka(ctx context.Context, dir string, settings ...string) (*KafkaServer, error) {
	jars := os.Getenv("PERIGEE_KAFKA_JARS")
	if jars == "" {
		return nil, fmt.Errorf("no Kafka: run tools/setup.sh kafka and set PERIGEE_KAFKA_JARS to .build/kafka")
	}
	path, err := FindBinary("java", "default-jre-headless")
	if err != nil {
		return nil, err
	}
	if dir, err = makeFolder(dir); err != nil {
		return nil, err
	}
	k := &KafkaServer{server: server{name: "kafka", path: path, dir: dir}}
	if k.controller, err = freePort(); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "server.properties")
	options := []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	for _, s := range settings {
		if strings.HasPrefix(s, "-") {
			options = append(options, s)
		}
	}
	settings = slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, "-") })
	java := func(class string, args ...string) []string {
		return append(slices.Concat(options, []string{"-cp", filepath.Join(jars, "*"), class}), args...)
	}
	k.ready = k.ping
	k.command = func(port int) []string {
		_ = os.WriteFile(config, k.properties(port, settings), 0o600) // otherwise the broker fails
		return java("kafka.Kafka", config)
	}
	if err := os.WriteFile(config, k.properties(0, settings), 0o600); err != nil {
		return nil, err
	}
	format := exec.CommandContext(ctx, path, java("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", "perigee-private-cluste", "-c", config)...)
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make Kafka's data folder: %w\n%s", err, out)
	}
	return k, k.startFirst(ctx)
}

func (k *KafkaServer) properties(port int, settings []string) []byte {
	client, controller := "127.0.0.1:"+strconv.Itoa(port), "127.0.0.1:"+strconv.Itoa(k.controller)
	text := fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
log.dirs=%[3]s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
`, client, controller, filepath.Join(k.dir, "data"))
	for _, line := range settings {
		text = append(append(text, line...), '\n')
	}
	return text
}

// ping succeeds once the broker accepts connections.
func (k *KafkaServer) ping(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", k.Address())
	if err != nil {
		return err
	}
	return conn.Close()
}

// CreateTopic creates a topic with one partition, without a Kafka client: it requests the
// topic's metadata, which makes the broker create it, until the broker reports no error.
func (k *KafkaServer) CreateTopic(ctx context.Context, name string) error {
	for {
		code, err := k.requestMetadata(ctx, name)
		if err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		if code == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w; the broker's last answer was error %d", name, ctx.Err(), code)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// requestMetadata returns the error code of a topic's metadata.
func (k *KafkaServer) requestMetadata(ctx context.Context, topic string) (code int16, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", k.Address())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	const metadata, version, correlation, topics = 3, 0, 1, 1
	order := binary.BigEndian
	request := order.AppendUint16(nil, metadata)
	request = order.AppendUint16(request, version)
	request = order.AppendUint32(request, correlation)
	request = order.AppendUint16(request, 0) // length of the client id
	request = order.AppendUint32(request, topics)
	request = append(order.AppendUint16(request, uint16(len(topic))), topic...)
	if _, err := conn.Write(append(order.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return 0, err
	}
	var size uint32
	if err := binary.Read(conn, order, &size); err != nil {
		return 0, err
	}
	reply := make([]byte, min(size, 1<<20))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return 0, err
	}
	return parseTopicError(reply)
}

// parseTopicError returns the error code of the first topic, which follows the brokers.
func parseTopicError(reply []byte) (int16, error) {
	order := binary.BigEndian
	at := 4 // after the correlation id
	number := func(size int) int {
		from := at
		if at += size; at > len(reply) {
			return 0
		}
		if size == 2 {
			return int(int16(order.Uint16(reply[from:])))
		}
		return int(int32(order.Uint32(reply[from:])))
	}
	for range number(4) {
		number(4) // id
		at += number(2)
		number(4) // port
	}
	number(4) // count of topics
	code := number(2)
	if at > len(reply) || at < 0 {
		return 0, errors.New("the broker sent a truncated reply")
	}
	return int16(code), nil
}
